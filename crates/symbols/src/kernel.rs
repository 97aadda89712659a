//! Names the kernel's functions, from `/proc/kallsyms`.
//!
//! For users without privileges, all addresses in that file are 0. Then every kernel frame is named
//! `[kernel]`.

use crate::disk_cache::DiskCache;
use crate::frame::ResolvedFrame;
use crate::kallsyms::{each_function, lines};
use crate::kernel_image::KernelImage;
use crate::module_file::ModuleFile;
use std::cell::OnceCell;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The module of kernel frames, and the name of unknown kernel functions.
pub const KERNEL: &str = "[kernel]";

/// Returns the kernel as a module.
pub fn module() -> Arc<ModuleFile> {
    static MODULE: OnceLock<Arc<ModuleFile>> = OnceLock::new();
    let make = || Arc::new(ModuleFile { path: PathBuf::from(KERNEL), ..ModuleFile::default() });
    Arc::clone(MODULE.get_or_init(make))
}

/// Returns a frame of an unknown kernel function.
pub fn some_function() -> ResolvedFrame {
    ResolvedFrame { function: KERNEL.to_owned(), ..ResolvedFrame::default() }
}

/// Names the kernel's functions. Functions of the kernel's own image are cached on disk. Other
/// addresses, and an empty cache, need the whole list of symbols.
#[derive(Default)]
pub struct KernelNames {
    image: OnceCell<Option<KernelImage>>,
    all: OnceCell<KernelTable>,
}

impl KernelNames {
    /// Returns the name of the function that contains an address; `[kernel]` if it is unknown.
    pub fn name_at(&self, address: u64, kept: Option<&DiskCache>) -> String {
        let image = self.image.get_or_init(|| KernelImage::read(kept?, lines()?));
        if let Some(name) = image.as_ref().and_then(|image| image.name_at(address)) {
            return name;
        }
        let read = || {
            let all = lines().map(KernelTable::parse).unwrap_or_default();
            if let (None, Some(kept)) = (image, kept) {
                KernelImage::keep(kept, all.functions());
            }
            all
        };
        self.all.get_or_init(read).name_at(address).unwrap_or_else(|| KERNEL.to_owned())
    }
}

/// A sorted list of functions.
#[derive(Default)]
struct KernelTable {
    /// The names, without separators.
    names: Vec<u8>,
    /// For each function its address, and the offset and the length of its name.
    functions: Vec<(u64, u32, u16)>,
}

impl KernelTable {
    fn parse(lines: impl BufRead) -> KernelTable {
        let mut table = KernelTable::default();
        each_function(lines, |address, name| {
            let place = (u32::try_from(table.names.len()), u16::try_from(name.len()));
            if let (Ok(at), Ok(len)) = place {
                table.names.extend_from_slice(name);
                table.functions.push((address, at, len));
            }
            true
        });
        table.functions.sort_unstable();
        table
    }

    /// Returns all functions in order of address. Those at one address are in the kernel's order.
    fn functions(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.functions.iter().map(|(address, at, len)| (*address, self.name(*at, *len)))
    }

    fn name(&self, at: u32, len: u16) -> &[u8] {
        self.names.get(at as usize..at as usize + usize::from(len)).unwrap_or_default()
    }

    fn name_at(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|f| f.0 <= address);
        let (_, at, len) = *self.functions.get(after.checked_sub(1)?)?;
        Some(String::from_utf8_lossy(self.name(at, len)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t do_work\t[mod]\n\
                    ffffffff81000180 d data\nffffffff81000200 T other\n";
        let table = KernelTable::parse(text.as_bytes());
        assert_eq!(table.name_at(0xffff_ffff_8100_0190).as_deref(), Some("do_work"));
        assert_eq!(table.name_at(0xffff_ffff_8100_0200).as_deref(), Some("other"));
        assert_eq!(table.name_at(0xffff_ffff_8000_0000), None);
        let hidden = KernelTable::parse(&b"0000000000000000 T _text\n"[..]);
        assert_eq!(hidden.name_at(0xffff_ffff_8100_0190), None);
    }

    #[test]
    fn cached_names_agree_with_the_whole_file() {
        let scratch = tempfile::tempdir().unwrap();
        let kept = DiskCache::new(scratch.path().join("tables"));
        let mut addresses = vec![1 << 63, u64::MAX];
        if let Some(lines) = lines() {
            each_function(lines, |address, _| {
                addresses.push(address + 1);
                true
            });
        }
        // The first look-up reads the whole file and fills the cache.
        KernelNames::default().name_at(u64::MAX, Some(&kept));
        let (with, without) = (KernelNames::default(), KernelNames::default());
        for address in addresses.into_iter().step_by(7) {
            let names = [with.name_at(address, Some(&kept)), without.name_at(address, None)];
            assert_eq!(names[0], names[1], "{address:x}");
        }
    }
}
