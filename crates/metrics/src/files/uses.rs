//! Finds what each row of calls on files belongs to: a file, or a group of files, and a line.
//!
//! Only some calls have a stack: of each kind one in 22 ms of a thread's time, and long ones. A call without
//! one counts for the line from which the same thread made the same kind of call on the same file
//! (or a file that is listed together with it) before, or else for the first one afterwards.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::{
    FileCalls, FileKind, FileOperation, NameId, ProcessIndex, StackId, ThreadIndex,
};

use crate::host::CodeLine;
use crate::host::code_line::CodeLines;

/// From this many files of a directory with one extension on, they are listed together. So are files
/// of this many directories of one directory, as data sets with a directory for each class have them,
/// this many ports of one peer, as clients have them, and this many peers with one port, as a storage
/// service has them.
const MANY: usize = 16;

/// What calls were made on and from: the key of a sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Use {
    /// Whether it is a file, a socket, a pipe or a device.
    pub kind: FileKind,
    /// Path of the file, or of several: `DIRECTORY/*.EXTENSION` or `DIRECTORY/*/*.EXTENSION`; or a
    /// socket's peer, or several: `socket ADDRESS:*` or `socket *:PORT`. Empty if it is unknown.
    pub file: String,
    /// The file system, as in `nfs4 at /data (server:/export)`; empty if it is unknown, or if this
    /// isn't a file.
    pub file_system: String,
    /// Which kind of call it was: open, read, write and so on.
    pub operation: FileOperation,
    /// The line of the program that made them; `None` if no call had a stack with a line.
    pub line: Option<CodeLine>,
    /// Whether a function that saves a checkpoint or a file made them.
    pub saves: bool,
}

/// Index of a [`Use`] in [`Uses`].
pub(super) type UseId = u32;

/// The uses of a rank's calls.
pub(super) struct Uses<'a> {
    file: &'a TraceFile,
    groups: Groups<'a>,
    lines: CodeLines<'a>,
    /// The line of each stack, and whether it saves.
    known: FxHashMap<(ProcessIndex, StackId), u32>,
    of_line: FxHashMap<(Option<CodeLine>, bool), u32>,
    ids: FxHashMap<(FileKind, GroupId, NameId, FileOperation, u32), UseId>,
    uses: Vec<Use>,
}

/// Index of the path or peer that some calls are listed under.
type GroupId = u32;

/// What calls of one thread that probably come from one line have in common.
type Alike = (ProcessIndex, ThreadIndex, GroupId, FileOperation);

impl<'a> Uses<'a> {
    pub fn new(file: &'a TraceFile) -> Uses<'a> {
        Uses {
            file,
            groups: Groups::of(file),
            lines: CodeLines::new(file),
            known: FxHashMap::default(),
            of_line: FxHashMap::default(),
            ids: FxHashMap::default(),
            uses: Vec::new(),
        }
    }

    /// Calls `with` for each row, in order of the file.
    pub fn each(&mut self, mut with: impl FnMut(&FileCalls, UseId)) {
        let file = self.file;
        let rows = || file.blocks::<FileCalls>().flatten();
        let mut last: FxHashMap<Alike, StackId> = FxHashMap::default();
        for row in rows().filter(|row| row.stack != 0) {
            last.entry(self.alike(&row)).or_insert(row.stack);
        }
        for row in rows() {
            let alike = self.alike(&row);
            let stack = match row.stack {
                0 => last.get(&alike).copied().unwrap_or(0),
                stack => {
                    last.insert(alike, stack);
                    stack
                }
            };
            let line = self.line(row.process, stack);
            let key = (row.kind, alike.2, row.file_system, row.operation, line);
            let id = match self.ids.get(&key) {
                Some(id) => *id,
                None => self.add(key),
            };
            with(&row, id);
        }
    }

    /// Returns how the file with this name is listed; `None` if no row has it.
    pub fn shown(&self, file: NameId) -> Option<String> {
        let id = self.groups.ids.get(&(file, true))?;
        Some(self.groups.shown[*id as usize].clone())
    }

    /// Returns what the ids stand for.
    pub fn finish(self) -> Vec<Use> {
        self.uses
    }

    fn alike(&mut self, row: &FileCalls) -> Alike {
        (row.process, row.thread, self.groups.of_row(row), row.operation)
    }

    fn line(&mut self, process: ProcessIndex, stack: StackId) -> u32 {
        if let Some(line) = self.known.get(&(process, stack)) {
            return *line;
        }
        let place = self.lines.place(process, stack);
        let saves = place.as_ref().is_some_and(|place| place.saves);
        let key = (place.and_then(|place| place.code_line()), saves);
        let next = self.of_line.len() as u32;
        let line = *self.of_line.entry(key).or_insert(next);
        self.known.insert((process, stack), line);
        line
    }

    fn add(&mut self, key: (FileKind, GroupId, NameId, FileOperation, u32)) -> UseId {
        let (kind, group, file_system, operation, line) = key;
        let found = self.of_line.iter().find(|(_, id)| **id == line);
        let (line, saves) = found.map(|(key, _)| key.clone()).unwrap_or_default();
        let file = self.groups.shown[group as usize].clone();
        let file_system = self.file.name(file_system).to_owned();
        let id = self.uses.len() as UseId;
        self.uses.push(Use { kind, file, file_system, operation, line, saves });
        self.ids.insert(key, id);
        id
    }
}

/// Whether the recording names several files so.
pub(super) fn is_joint(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with('*'))
}

/// Decides which files and peers are listed together, in one row.
struct Groups<'a> {
    file: &'a TraceFile,
    /// Number of files by directory and extension.
    sizes: FxHashMap<String, usize>,
    /// Number of such groups by the directory above and extension.
    wide_sizes: FxHashMap<String, usize>,
    /// Number of peers by address, and by port.
    peer_sizes: FxHashMap<String, usize>,
    ids: FxHashMap<(NameId, bool), GroupId>,
    by_text: FxHashMap<String, GroupId>,
    shown: Vec<String>,
}

impl<'a> Groups<'a> {
    fn of(file: &'a TraceFile) -> Groups<'a> {
        let mut seen: FxHashSet<NameId> = FxHashSet::default();
        let mut sizes: FxHashMap<String, usize> = FxHashMap::default();
        let mut wide_sizes: FxHashMap<String, usize> = FxHashMap::default();
        let mut peer_sizes: FxHashMap<String, usize> = FxHashMap::default();
        for row in file.blocks::<FileCalls>().flatten() {
            let text = file.name(row.file);
            if row.kind == FileKind::Socket && seen.insert(row.file) {
                for group in peer_groups(text).into_iter().flatten() {
                    *peer_sizes.entry(group).or_default() += 1;
                }
            }
            if row.kind == FileKind::File && seen.insert(row.file) {
                let weight = if is_joint(text) { MANY } else { 1 };
                let size = sizes.entry(group(text)).or_default();
                if *size == 0
                    && let Some(wide) = wide_group(text)
                {
                    *wide_sizes.entry(wide).or_default() += 1;
                }
                *size += weight;
            }
        }
        let (ids, by_text, shown) = Default::default();
        Groups { file, sizes, wide_sizes, peer_sizes, ids, by_text, shown }
    }

    fn of_row(&mut self, row: &FileCalls) -> GroupId {
        let key = (row.file, row.kind == FileKind::File);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let own = self.file.name(row.file);
        let is_large = |sizes: &FxHashMap<String, usize>, group: &String| {
            sizes.get(group).is_some_and(|size| *size >= MANY)
        };
        let joint = match row.kind {
            FileKind::File => wide_group(own)
                .filter(|wide| is_large(&self.wide_sizes, wide))
                .or_else(|| Some(group(own)).filter(|group| is_large(&self.sizes, group))),
            FileKind::Socket => {
                let groups = peer_groups(own).into_iter().flatten();
                groups.into_iter().find(|group| is_large(&self.peer_sizes, group))
            }
            _ => None,
        };
        let shown = joint.unwrap_or_else(|| own.to_owned());
        let next = self.shown.len() as GroupId;
        let id = *self.by_text.entry(shown.clone()).or_insert(next);
        if id == next {
            self.shown.push(shown);
        }
        self.ids.insert(key, id);
        id
    }
}

/// The names of all ports of a peer, and of all peers with its port; `None` for a peer without a port.
fn peer_groups(peer: &str) -> [Option<String>; 2] {
    let parts = peer.strip_prefix("socket ").and_then(|at| at.rsplit_once(':'));
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit());
    match parts.filter(|(_, port)| is_port(port)) {
        Some((address, port)) => {
            [Some(format!("socket {address}:*")), Some(format!("socket *:{port}"))]
        }
        None => [None, None],
    }
}

/// The name of all files with one extension of all directories beside a file's own; `None` for a file
/// without a directory above its own.
fn wide_group(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/')?;
    let (above, _) = directory.rsplit_once('/').filter(|(above, _)| !above.is_empty())?;
    Some(group(&format!("{above}/*/{name}")))
}

/// The name of all files of a directory with one extension.
fn group(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let slash = if path.contains('/') { "/" } else { "" };
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => format!("{directory}{slash}*.{extension}"),
        _ => format!("{directory}{slash}*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_grouped_by_address_and_port() {
        let of = |peer| peer_groups(peer).map(Option::unwrap_or_default);
        assert_eq!(of("socket 10.0.0.5:443"), ["socket 10.0.0.5:*", "socket *:443"]);
        assert_eq!(of("socket [::1]:80"), ["socket [::1]:*", "socket *:80"]);
        for other in ["socket", "socket /run/a.sock", "socket [::1]", "socket /run/a:b", "pipe"] {
            assert_eq!(of(other), ["", ""], "{other}");
        }
    }

    #[test]
    fn files_are_grouped_by_directory_and_by_the_directory_above() {
        assert_eq!(group("/data/a.jpg"), "/data/*.jpg");
        assert_eq!(group("/data/README"), "/data/*");
        assert_eq!(wide_group("/data/cat/a.jpg").unwrap(), "/data/*/*.jpg");
        assert_eq!(wide_group("/data/cat/*.jpg").unwrap(), "/data/*/*.jpg");
        assert_eq!(wide_group("/data/a.jpg"), None);
        assert_eq!(wide_group("a.jpg"), None);
    }
}
