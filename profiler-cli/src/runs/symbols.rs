//! Symbolizes code addresses that the recorder left without a function name, when a run is read.
//! Reads the files that the run's modules name, if they haven't changed since the run.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tprof_symbols::elf::Elf;
use tprof_symbols::{ModuleFile, Symbolizer};
use tprof_trace::{CodePlace, Function, SymbolSource};

/// Largest number of unusable files that the notes name.
const MOST_FILES: usize = 3;

/// A symbolizer, and the files that it could not use.
#[derive(Default)]
pub struct LateSymbolizer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    symbolizer: Option<Symbolizer>,
    /// Whether the file at a path is the one that ran, by path and build id.
    files: HashMap<(String, String), SameFile>,
    left: BTreeSet<(String, &'static str)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SameFile {
    Same,
    /// The file at the path is another one, or missing. A debug file with the same build id may
    /// still exist elsewhere.
    Elsewhere(&'static str),
    Unknown(&'static str),
}

impl SymbolSource for LateSymbolizer {
    fn functions(&self, place: &CodePlace<'_>) -> Vec<Function> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { symbolizer, files, left } = &mut *state;
        let key = (place.path.to_owned(), place.build_id.to_owned());
        let verdict = *files.entry(key).or_insert_with(|| judge(place));
        let found = match verdict {
            SameFile::Unknown(_) => Vec::new(),
            SameFile::Same | SameFile::Elsewhere(_) => {
                let module = ModuleFile {
                    path: place.path.into(),
                    build_id: place.build_id.to_owned(),
                    ..ModuleFile::default()
                };
                let symbolizer = symbolizer.get_or_insert_with(|| Symbolizer::sparing(None, false));
                symbolizer.resolve(&module, place.pc).to_vec()
            }
        };
        if let (true, SameFile::Elsewhere(why) | SameFile::Unknown(why)) =
            (found.is_empty(), verdict)
        {
            left.insert((place.path.to_owned(), why));
        }
        let function = |frame: tprof_symbols::ResolvedFrame| Function {
            name: frame.function,
            file: frame.file,
            line: frame.line,
        };
        found.into_iter().map(function).filter(|function| !function.name.is_empty()).collect()
    }
}

impl LateSymbolizer {
    /// Returns sentences about the files that could not be used.
    pub fn notes(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes: Vec<String> = (state.left.iter().take(MOST_FILES))
            .map(|(path, why)| format!("{path} {why}: functions of this file are shown by address"))
            .collect();
        let more = state.left.len().saturating_sub(MOST_FILES);
        if more > 0 {
            let files = if more == 1 { "file" } else { "files" };
            notes.push(format!(
                "{more} more {files} could not be read: their functions are shown by address"
            ));
        }
        notes
    }
}

/// Checks whether the file at a place's path is the one that ran.
fn judge(place: &CodePlace<'_>) -> SameFile {
    let path = Path::new(place.path);
    if !path.is_absolute() {
        // The place is in the vDSO, which is not in any file, or its path was left out by
        // `--redact`.
        return match place.path.starts_with('[') {
            true => SameFile::Unknown("is not a file"),
            false => SameFile::Unknown("has no recorded path (--redact)"),
        };
    }
    // Opening a pipe with this name would block forever.
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    let Some(elf) = is_file.then(|| Elf::open(path).ok()).flatten() else {
        return match place.build_id.is_empty() {
            true => SameFile::Unknown("no longer exists"),
            false => SameFile::Elsewhere("no longer exists"),
        };
    };
    if !place.build_id.is_empty() {
        return match elf.build_id() == place.build_id {
            true => SameFile::Same,
            false => SameFile::Elsewhere("has changed since the run (another build id)"),
        };
    }
    // Without a build id, a file counts as the same if it has not changed since the run.
    let changed = path.metadata().map(|meta| (meta.ctime(), meta.ctime_nsec()));
    let changed = changed.map(|(s, ns)| s.saturating_mul(1_000_000_000).saturating_add(ns));
    match changed {
        Ok(ns) if u64::try_from(ns).is_ok_and(|ns| ns < place.recorded_unix_ns) => SameFile::Same,
        _ => SameFile::Unknown("has no build id and has changed since the run"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> (String, Elf) {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::open(&path).unwrap();
        (path.to_string_lossy().into_owned(), elf)
    }

    /// Returns an address inside a function of this program.
    fn own_pc() -> u64 {
        let address = judge as fn(&CodePlace<'static>) -> SameFile as usize as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let (path, elf) = own();
        let line = maps.lines().find(|line| line.ends_with(&path)).unwrap();
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        // The first mapping of a position-independent program begins at ELF address 0.
        assert!(elf.segments().iter().any(|segment| segment.is_code()));
        address - start + 1
    }

    #[test]
    fn code_of_the_same_file_is_named() {
        let (path, elf) = own();
        let late = LateSymbolizer::default();
        let place = CodePlace {
            path: &path,
            build_id: &elf.build_id(),
            pc: own_pc(),
            recorded_unix_ns: u64::MAX,
        };
        let found = late.functions(&place);
        assert!(found.last().is_some_and(|f| f.name.contains("judge")), "{found:?}");
        assert_eq!(late.notes(), Vec::<String>::new());
    }

    #[test]
    fn code_of_another_file_is_not_named_and_that_is_reported() {
        let (path, _) = own();
        let late = LateSymbolizer::default();
        let place =
            |path, build_id| CodePlace { path, build_id, pc: own_pc(), recorded_unix_ns: 1 };
        assert_eq!(late.functions(&place(&path, "00ff")), []);
        assert_eq!(late.functions(&place(&path, "")), []);
        assert_eq!(late.functions(&place("/nonexistent/libx.so", "00ff")), []);
        assert_eq!(late.functions(&place("libx.so", "00ff")), []);
        let notes = late.notes().join("\n");
        assert!(notes.contains("has changed since the run (another build id)"), "{notes}");
        assert!(notes.contains("libx.so no longer exists"), "{notes}");
        assert!(notes.contains("1 more file could not be read"), "{notes}");
    }
}
