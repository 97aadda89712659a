//! Interns the texts of frames. The same code has the same text in every process, so stacks of
//! different processes can be compared.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_facts::frames;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, StackId};

/// An interned frame text.
pub type FrameId = u32;

/// Names the frames of one file and interns the texts.
pub struct Frames<'a> {
    file: &'a TraceFile,
    frames: frames::Frames<'a>,
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, FrameId>,
    addresses: FxHashMap<(ProcessIndex, u64), Vec<FrameId>>,
}

impl<'a> Frames<'a> {
    /// Creates an empty table for the frames of this file.
    pub fn new(file: &'a TraceFile) -> Frames<'a> {
        Frames {
            file,
            frames: frames::Frames::new(file),
            texts: Vec::new(),
            ids: HashMap::new(),
            addresses: FxHashMap::default(),
        }
    }

    /// Returns the frames of a stack, innermost first, including inlined functions; empty if no
    /// stack was taken. If the stack was cut, a text that begins with [`frames::CUT`] stands for
    /// the missing frames.
    pub fn stack(&mut self, process: ProcessIndex, stack: StackId) -> Vec<FrameId> {
        let mut named = Vec::new();
        let Some(found) = self.file.stack(process, stack) else { return named };
        for address in self.frames.shown(found) {
            if !self.addresses.contains_key(&(process, address)) {
                let frames = self.address(process, address);
                self.addresses.insert((process, address), frames);
            }
            named.extend_from_slice(&self.addresses[&(process, address)]);
        }
        if let Some(cut) = frames::cut(found.end).filter(|_| !named.is_empty()) {
            named.push(self.intern(cut.to_owned()));
        }
        named
    }

    /// Text of a frame.
    pub fn text(&self, frame: FrameId) -> &Arc<str> {
        &self.texts[frame as usize]
    }

    /// Returns the texts of several frames.
    pub fn texts(&self, frames: &[FrameId]) -> Vec<Arc<str>> {
        frames.iter().map(|&frame| Arc::clone(self.text(frame))).collect()
    }

    fn address(&mut self, process: ProcessIndex, address: u64) -> Vec<FrameId> {
        let found = self.frames.at(process, address);
        found.into_iter().map(|frame| self.intern(frame.to_string())).collect()
    }

    fn intern(&mut self, text: String) -> FrameId {
        if let Some(&id) = self.ids.get(text.as_str()) {
            return id;
        }
        let id = self.texts.len() as FrameId;
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }
}
