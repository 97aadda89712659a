//! Names of the kernel's functions, from `/proc/kallsyms`.
//!
//! Without privileges the file shows zeros for addresses; frames are then named
//! as the kernel's, and not which.

use super::frame::ResolvedFrame;
use super::module_file::ModuleFile;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The module that kernel frames lie in.
pub const KERNEL: &str = "[kernel]";
/// Lowest address of kernel code: the upper half.
const LOWEST: u64 = 1 << 63;

/// The kernel as a module.
pub fn module() -> Arc<ModuleFile> {
    static MODULE: OnceLock<Arc<ModuleFile>> = OnceLock::new();
    let make = || Arc::new(ModuleFile { path: PathBuf::from(KERNEL), ..ModuleFile::default() });
    Arc::clone(MODULE.get_or_init(make))
}

/// A frame of the kernel of which no more is known.
pub fn some_function() -> ResolvedFrame {
    ResolvedFrame { function: KERNEL.to_owned(), ..ResolvedFrame::default() }
}

/// Functions by address.
#[derive(Default)]
pub struct KernelTable {
    text: String,
    /// Address, and where the name lies in the text.
    functions: Vec<(u64, u32, u16)>,
}

impl KernelTable {
    /// Reads the running kernel's: some 200,000 lines.
    pub fn read() -> KernelTable {
        KernelTable::parse(std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(text: String) -> KernelTable {
        let mut functions = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let mut words = line.split_ascii_whitespace();
            let (address, kind, name) = (words.next(), words.next(), words.next());
            if let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) = (address, kind, name)
                && let Ok(address) = u64::from_str_radix(address, 16)
                && address >= LOWEST
                && let (Ok(from), Ok(len)) = (
                    u32::try_from(at + (name.as_ptr() as usize - line.as_ptr() as usize)),
                    u16::try_from(name.len()),
                )
            {
                functions.push((address, from, len));
            }
            at += line.len();
        }
        functions.sort_unstable();
        KernelTable { text, functions }
    }

    /// The function that holds an address; `[kernel]` if that is not known.
    pub fn name_at(&self, address: u64) -> String {
        let after = self.functions.partition_point(|f| f.0 <= address);
        let found = after.checked_sub(1).and_then(|at| {
            let (_, from, len) = self.functions[at];
            self.text.get(from as usize..from as usize + usize::from(len))
        });
        found.unwrap_or(KERNEL).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_find_the_function_before_them() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t do_work\t[mod]\n\
                    ffffffff81000180 d data\nffffffff81000200 T other\n";
        let table = KernelTable::parse(text.to_owned());
        assert_eq!(table.name_at(0xffff_ffff_8100_0190), "do_work");
        assert_eq!(table.name_at(0xffff_ffff_8100_0200), "other");
        assert_eq!(table.name_at(0xffff_ffff_8000_0000), KERNEL);
        let hidden = KernelTable::parse("0000000000000000 T _text\n".to_owned());
        assert_eq!(hidden.name_at(0xffff_ffff_8100_0190), KERNEL);
    }
}
