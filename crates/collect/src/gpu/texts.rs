//! Stores the texts that a process's agent has defined, and their ids in the file.

use std::collections::HashMap;
use tprof_symbols::demangle;
use tprof_trace::TraceWriter;
use tprof_trace::kernel_name::canonical;
use tprof_trace::model::NameId;

struct Text {
    raw: String,
    plain: Option<NameId>,
    changed: Option<NameId>,
}

/// Number of names that are cached, because a job runs few kernels many times.
const RECENT: usize = 256;

/// The agent's texts, by their ids.
pub struct Texts {
    known: HashMap<u32, Text>,
    /// The cached converted names: an id, and the name. The low bits of the id select the place.
    recent: Box<[(u32, NameId); RECENT]>,
    /// The cached unconverted names, in the same order.
    recent_plain: Box<[(u32, NameId); RECENT]>,
}

impl Default for Texts {
    fn default() -> Texts {
        let none = || Box::new([(0, NameId::default()); RECENT]);
        Texts { known: HashMap::new(), recent: none(), recent_plain: none() }
    }
}

impl Texts {
    /// Adds a definition. The payload contains the length in bytes and the bytes. Returns `None` if
    /// it is malformed.
    pub fn define(&mut self, id: u32, payload: &[u64]) -> Option<()> {
        let raw = unpack_text(payload)?;
        for recent in [&mut self.recent, &mut self.recent_plain] {
            recent[id as usize % RECENT] = (0, NameId::default());
        }
        self.known.insert(id, Text { raw, plain: None, changed: None });
        Some(())
    }

    /// Returns a text; `None` if `id` is 0 or the text isn't defined yet.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.known.get(&id).map(|text| text.raw.as_str())
    }

    /// Returns the file's id of a text as the agent defined it; `None` if the text isn't defined
    /// yet.
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

    /// Returns the file's id of a kernel's demangled name.
    pub fn demangled(&mut self, id: u32, writer: &mut TraceWriter) -> NameId {
        self.changed(id, writer, name_of_kernel)
    }

    /// Returns the file's id of a call's name without its version.
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

/// Decodes a text that [`tprof_wire::gpu::pack_text`] encoded; `None` if the payload is malformed.
pub fn unpack_text(payload: &[u64]) -> Option<String> {
    let (len, words) = payload.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Some(String::from_utf8_lossy(bytes.get(..usize::try_from(*len).ok()?)?).into_owned())
}

/// Converts a kernel's mangled name to the name that torch.profiler's traces have.
fn name_of_kernel(raw: &str) -> String {
    canonical(&demangle(raw)).into_owned()
}

/// Removes the version that CUPTI appends to the name of a call: `cudaLaunchKernel_v7000` becomes
/// `cudaLaunchKernel`. Suffixes like `_ptsz` stay, because they name other functions.
pub fn without_version(name: &str) -> &str {
    let plain = name.rsplit_once("_v").filter(|(_, version)| {
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
    });
    plain.map_or(name, |(plain, _)| plain)
}

#[cfg(test)]
mod tests {
    use super::{name_of_kernel, without_version};

    /// The expected names are those that `__cxa_demangle` of GCC 12 returns.
    #[test]
    fn kernels_are_demangled_as_the_cpp_library_does_it() {
        for (raw, wanted) in [
            ("_Z4gemmPKfS0_Pfiii", "gemm(float const*, float const*, float*, int, int, int)"),
            ("nvjet_sm90_tst_96x64_64x8_2x4_h_bz_NTN", "nvjet_sm90_tst_96x64_64x8_2x4_h_bz_NTN"),
            (
                "_Z3litILj2ELm3ELln4ELx5ELy6ELsn7ELc97ELh8ELb1ELin9EL1E1EEvi",
                "void lit<2u, 3ul, -4l, 5ll, 6ull, (short)-7, (char)97, (unsigned char)8, true, -9, (E)1>(int)",
            ),
            (
                "_Z4implIZ3usevEUl1BE_EviRKT_",
                "void impl<use()::{lambda(B)#1}>(int, use()::{lambda(B)#1} const&)",
            ),
            (
                "_Z4implIZ3usevEUl1BS0_E0_EviRKT_",
                "void impl<use()::{lambda(B, B)#2}>(int, use()::{lambda(B, B)#2} const&)",
            ),
            (
                "_Z4implIZ3usevEUlP1BE1_EviRKT_",
                "void impl<use()::{lambda(B*)#3}>(int, use()::{lambda(B*)#3} const&)",
            ),
            (
                "_Z4implIZ3usevEUlRK1BE2_EviRKT_",
                "void impl<use()::{lambda(B const&)#4}>(int, use()::{lambda(B const&)#4} const&)",
            ),
            (
                "_Z4implIZ3usevEUlvE3_EviRKT_",
                "void impl<use()::{lambda()#5}>(int, use()::{lambda()#5} const&)",
            ),
            (
                "_Z4kernIZ5impl2IZ3usevEUlfE8_EviRKT_EUliE_EviS2_",
                "void kern<impl2<use()::{lambda(float)#10}>(int, use()::{lambda(float)#10} const&)::{lambda(int)#1}>(int, impl2<use()::{lambda(float)#10}>(int, use()::{lambda(float)#10} const&)::{lambda(int)#1})",
            ),
            (
                "_Z4kernIZ5impl3IZ3usevEUl1BE10_EviPKT_PS3_EUliE_EviS3_",
                "void kern<impl3<use()::{lambda(B)#12}>(int, use()::{lambda(B)#12} const*, use()::{lambda(B)#12}*)::{lambda(int)#1}>(int, impl3<use()::{lambda(B)#12}>(int, use()::{lambda(B)#12} const*, use()::{lambda(B)#12}*)::{lambda(int)#1})",
            ),
            (
                "_Z4kernIZ5impl4IRZ3usevEUl1BE10_EviOT_EUliE_EviS4_",
                "void kern<impl4<use()::{lambda(B)#12}&>(int, use()::{lambda(B)#12}&)::{lambda(int)#1}>(int, impl4<use()::{lambda(B)#12}&>(int, use()::{lambda(B)#12}&)::{lambda(int)#1})",
            ),
            ("_ZN12_GLOBAL__N_14anonIiEEvT_", "void (anonymous namespace)::anon<int>(int)"),
        ] {
            assert_eq!(name_of_kernel(raw), wanted);
        }
    }

    #[test]
    fn the_version_is_removed_from_the_name_of_a_call() {
        assert_eq!(without_version("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(without_version("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync_ptsz");
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(without_version("cuCtx_vfoo"), "cuCtx_vfoo");
        assert_eq!(without_version("cudaFree"), "cudaFree");
    }
}
