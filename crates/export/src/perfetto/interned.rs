//! Interns the strings and stacks that the packets of a sequence refer to by number.

use rustc_hash::FxHashMap;
use tprof_facts::frames::Frames;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, StackId, ThreadState};

use super::fields::{frame, interned, mapping, stack};
use crate::kineto_names;
use crate::proto::Proto;

/// Interns data by number. If the next packet refers to data that the sequence has not defined yet,
/// the definition is collected in `new`, which is written before the packet.
pub(super) struct Interned<'a> {
    file: &'a TraceFile,
    frames: Frames<'a>,
    /// Encoded `InternedData` that must be written before the next packet.
    pub new: Proto,
    events: FxHashMap<NameId, u64>,
    categories: FxHashMap<NameId, u64>,
    /// The number of each text, by table.
    texts: FxHashMap<u32, FxHashMap<Box<str>, u64>>,
    /// The number of each static text of tprof, by table and address. A look-up by address needs no
    /// hash of the text.
    fixed: FxHashMap<(u32, usize), u64>,
    stacks: FxHashMap<(ProcessIndex, StackId, ThreadState), u64>,
    frame_ids: FxHashMap<(u64, u64, u64, u32), u64>,
    /// The last number that was assigned in each table.
    last: FxHashMap<u32, u64>,
    mapping: Option<u64>,
}

impl<'a> Interned<'a> {
    pub fn new(file: &'a TraceFile) -> Interned<'a> {
        Interned {
            file,
            frames: Frames::new(file),
            new: Proto::default(),
            events: FxHashMap::default(),
            categories: FxHashMap::default(),
            texts: FxHashMap::default(),
            fixed: FxHashMap::default(),
            stacks: FxHashMap::default(),
            frame_ids: FxHashMap::default(),
            last: FxHashMap::default(),
            mapping: None,
        }
    }

    /// Returns the number of an event's name. If the name is empty, `none` is used.
    pub fn event(&mut self, name: NameId, none: &str) -> u64 {
        if let Some(iid) = self.events.get(&name) {
            return *iid;
        }
        let text = self.file.name(name);
        if text.is_empty() {
            return self.text(interned::EVENT_NAMES, none);
        }
        let iid = self.text(interned::EVENT_NAMES, text);
        self.events.insert(name, iid);
        iid
    }

    /// Returns the number of a category; `None` if its name is empty.
    pub fn category(&mut self, name: NameId) -> Option<u64> {
        if let Some(iid) = self.categories.get(&name) {
            return Some(*iid);
        }
        let text = self.file.name(name);
        if text.is_empty() {
            return None;
        }
        let iid = self.text(interned::CATEGORIES, text);
        self.categories.insert(name, iid);
        Some(iid)
    }

    /// Returns the number of a text in one of the tables of [`interned`].
    pub fn text(&mut self, table: u32, text: &str) -> u64 {
        let known = self.texts.entry(table).or_default();
        if let Some(iid) = known.get(text) {
            return *iid;
        }
        let iid = next(&mut self.last, table);
        let entry = self.new.open(table);
        self.new.uint(interned::IID, iid);
        self.new.text(interned::TEXT, text);
        self.new.close(entry);
        known.insert(text.into(), iid);
        iid
    }

    /// Does the same as [`Self::text`] for a static text, which is looked up by address.
    pub fn fixed(&mut self, table: u32, text: &'static str) -> u64 {
        if let Some(iid) = self.fixed.get(&(table, text.as_ptr().addr())) {
            return *iid;
        }
        let iid = self.text(table, text);
        self.fixed.insert((table, text.as_ptr().addr()), iid);
        iid
    }

    /// Returns the number of a stack. If the thread waits, the reason is added as its innermost
    /// frame. `None` if no stack was recorded.
    pub fn stack(&mut self, process: ProcessIndex, id: StackId, state: ThreadState) -> Option<u64> {
        if id == 0 {
            return None;
        }
        if let Some(iid) = self.stacks.get(&(process, id, state)) {
            return Some(*iid);
        }
        let mut ids: Vec<u64> = Vec::new();
        for found in self.frames.of_stack(process, id) {
            ids.push(self.frame(&found.function, found.file, found.line, found.relative));
        }
        if let Some(waiting) = kineto_names::waiting(state) {
            ids.push(self.frame(waiting, "", 0, 0));
        }
        let iid = next(&mut self.last, interned::STACKS);
        let entry = self.new.open(interned::STACKS);
        self.new.uint(interned::IID, iid);
        for id in ids {
            self.new.uint(stack::FRAME, id);
        }
        self.new.close(entry);
        self.stacks.insert((process, id, state), iid);
        Some(iid)
    }

    fn frame(&mut self, function: &str, file: &str, line: u32, relative: u64) -> u64 {
        let mapping = self.mapping();
        let function = self.text(interned::FUNCTIONS, function);
        let path = if file.is_empty() { 0 } else { self.text(interned::SOURCE_PATHS, file) };
        // Frames of one function have different lines, but readers tell frames apart only by
        // address. So each line gets its own address.
        let key = (function, relative, path, line);
        if let Some(iid) = self.frame_ids.get(&key) {
            return *iid;
        }
        let iid = next(&mut self.last, interned::FRAMES);
        let entry = self.new.open(interned::FRAMES);
        self.new.uint(interned::IID, iid);
        self.new.uint(frame::FUNCTION, function);
        self.new.uint(frame::MAPPING, mapping);
        self.new.uint(frame::REL_PC, relative);
        if path > 0 {
            self.new.uint(frame::SOURCE_PATH, path);
            self.new.uint(frame::LINE, line.into());
        }
        self.new.close(entry);
        self.frame_ids.insert(key, iid);
        iid
    }

    /// Returns the number of the mapping of all frames. The format requires one for every frame.
    /// Names are already resolved, so one mapping serves all frames.
    fn mapping(&mut self) -> u64 {
        if let Some(iid) = self.mapping {
            return iid;
        }
        let path = self.text(interned::MAPPING_PATHS, "tprof");
        let entry = self.new.open(interned::MAPPINGS);
        self.new.uint(interned::IID, 1);
        self.new.uint(mapping::PATH, path);
        self.new.close(entry);
        self.mapping = Some(1);
        1
    }
}

fn next(last: &mut FxHashMap<u32, u64>, table: u32) -> u64 {
    let last = last.entry(table).or_default();
    *last += 1;
    *last
}
