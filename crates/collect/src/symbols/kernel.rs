//! Names of the kernel's functions, from `/proc/kallsyms`.
//!
//! Without privileges the file shows zeros for addresses; frames are then named
//! as the kernel's, and not which.

use super::frame::ResolvedFrame;
use super::module_file::ModuleFile;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The module that kernel frames lie in.
pub const KERNEL: &str = "[kernel]";
/// Lowest address of kernel code: the upper half.
const LOWEST: u64 = 1 << 63;
/// Bytes of the file that are read at once: the kernel gives a page. In room for all of its 5 MB,
/// which is new memory, it takes 59 ms instead of 36.
const BLOCK: usize = 64 << 10;

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
    /// One behind the other.
    names: Vec<u8>,
    /// Address, and where the name lies.
    functions: Vec<(u64, u32, u16)>,
}

impl KernelTable {
    /// Reads the running kernel's: some 200,000 lines.
    pub fn read() -> KernelTable {
        let file = File::open("/proc/kallsyms");
        file.map(|file| KernelTable::parse(BufReader::with_capacity(BLOCK, file)))
            .unwrap_or_default()
    }

    fn parse(mut lines: impl BufRead) -> KernelTable {
        let mut table = KernelTable::default();
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if let Some((address, name)) = function(&line)
                && let (Ok(at), Ok(len)) =
                    (u32::try_from(table.names.len()), u16::try_from(name.len()))
            {
                table.names.extend_from_slice(name);
                table.functions.push((address, at, len));
            }
            line.clear();
        }
        table.functions.sort_unstable();
        table
    }

    /// The function that holds an address; `[kernel]` if that is not known.
    pub fn name_at(&self, address: u64) -> String {
        let after = self.functions.partition_point(|f| f.0 <= address);
        let found = after.checked_sub(1).and_then(|at| {
            let (_, at, len) = self.functions[at];
            self.names.get(at as usize..at as usize + usize::from(len))
        });
        found.map_or(KERNEL.into(), String::from_utf8_lossy).into_owned()
    }
}

/// Address and name of a function's line: 16 digits, its kind, its name and perhaps its module.
fn function(line: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = line.split_first_chunk::<16>()?;
    let [b' ', b't' | b'T' | b'w' | b'W', b' ', name @ ..] = rest else { return None };
    let digit =
        |value: u64, digit: &u8| Some(value << 4 | u64::from((*digit as char).to_digit(16)?));
    let address = digits.iter().try_fold(0, digit)?;
    let end = name.iter().position(u8::is_ascii_whitespace).unwrap_or(name.len());
    (address >= LOWEST).then_some((address, &name[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_find_the_function_before_them() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t do_work\t[mod]\n\
                    ffffffff81000180 d data\nffffffff81000200 T other\n";
        let table = KernelTable::parse(text.as_bytes());
        assert_eq!(table.name_at(0xffff_ffff_8100_0190), "do_work");
        assert_eq!(table.name_at(0xffff_ffff_8100_0200), "other");
        assert_eq!(table.name_at(0xffff_ffff_8000_0000), KERNEL);
        let hidden = KernelTable::parse(&b"0000000000000000 T _text\n"[..]);
        assert_eq!(hidden.name_at(0xffff_ffff_8100_0190), KERNEL);
    }
}
