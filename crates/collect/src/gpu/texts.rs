//! Texts that a process's agent has defined, and their names in the file.

use crate::symbols::demangle::demangle;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::NameId;

struct Text {
    raw: String,
    plain: Option<NameId>,
    changed: Option<NameId>,
}

/// Names that are found without their table: a job runs few kernels, many times.
const RECENT: usize = 256;

/// By their ids.
pub struct Texts {
    known: HashMap<u32, Text>,
    /// By the low bits of ids: an id, and its changed name.
    recent: Box<[(u32, NameId); RECENT]>,
    /// The same of names as they are.
    recent_plain: Box<[(u32, NameId); RECENT]>,
}

impl Default for Texts {
    fn default() -> Texts {
        let none = || Box::new([(0, NameId::default()); RECENT]);
        Texts { known: HashMap::new(), recent: none(), recent_plain: none() }
    }
}

impl Texts {
    /// Takes a definition: an id, the length in bytes, the bytes.
    pub fn define(&mut self, id: u32, payload: &[u64]) -> Option<()> {
        let raw = unpack_text(payload)?;
        for recent in [&mut self.recent, &mut self.recent_plain] {
            recent[id as usize % RECENT] = (0, NameId::default());
        }
        self.known.insert(id, Text { raw, plain: None, changed: None });
        Some(())
    }

    /// A text; none if there is none, or if it is not defined (yet).
    pub fn text(&self, id: u32) -> Option<&str> {
        self.known.get(&id).map(|text| text.raw.as_str())
    }

    /// The name of a text as it is; none if it is not defined (yet).
    pub fn plain(&mut self, id: u32, writer: &mut TraceWriter) -> Option<NameId> {
        if id == 0 {
            return Some(NameId::default());
        }
        let recent = &mut self.recent_plain[id as usize % RECENT];
        if recent.0 != id {
            let text = self.known.get_mut(&id)?;
            *recent = (id, *text.plain.get_or_insert_with(|| writer.name(&text.raw)));
        }
        Some(recent.1)
    }

    /// The name of a kernel.
    pub fn demangled(&mut self, id: u32, writer: &mut TraceWriter) -> NameId {
        self.changed(id, writer, demangle)
    }

    /// The name of a call.
    pub fn call(&mut self, id: u32, writer: &mut TraceWriter) -> NameId {
        self.changed(id, writer, |raw| without_version(raw).to_owned())
    }

    fn changed(
        &mut self,
        id: u32,
        writer: &mut TraceWriter,
        change: impl FnOnce(&str) -> String,
    ) -> NameId {
        let recent = &mut self.recent[id as usize % RECENT];
        if recent.0 == id && id != 0 {
            return recent.1;
        }
        let Some(text) = self.known.get_mut(&id) else { return NameId::default() };
        let name = *text.changed.get_or_insert_with(|| writer.name(&change(&text.raw)));
        *recent = (id, name);
        name
    }
}

/// A text as [`tprof_wire::gpu::pack_text`] laid it out.
pub fn unpack_text(payload: &[u64]) -> Option<String> {
    let (len, words) = payload.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Some(String::from_utf8_lossy(bytes.get(..usize::try_from(*len).ok()?)?).into_owned())
}

/// `cudaLaunchKernel_v7000` → `cudaLaunchKernel`: CUPTI names the version of a
/// call's parameters too. `_ptsz` and the like, which are calls of their own, stay.
fn without_version(name: &str) -> &str {
    let plain = name.rsplit_once("_v").filter(|(_, version)| {
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
    });
    plain.map_or(name, |(plain, _)| plain)
}

#[cfg(test)]
mod tests {
    use super::without_version;

    #[test]
    fn a_calls_version_is_no_part_of_its_name() {
        assert_eq!(without_version("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(without_version("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync_ptsz");
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(without_version("cuCtx_vfoo"), "cuCtx_vfoo");
        assert_eq!(without_version("cudaFree"), "cudaFree");
    }
}
