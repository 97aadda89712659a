//! Names for return addresses, the same for the same code in every process.
//!
//! `function (file:line)` where there is debug information, `function (module)`
//! where there is a symbol table, else `module+offset`: addresses themselves
//! differ from process to process and would keep equal stacks apart.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, StackId, Symbol};
use tprof_trace::{CodeMap, TraceFile};

/// An interned frame text.
pub type FrameId = u32;

/// What stands for the outer frames of a stack that was cut begins so; then comes why.
pub const CUT: &str = "(cut off";

/// Why a stack ends early, by the number that says so in the file.
fn why_cut(end: u8) -> Option<&'static str> {
    match end {
        0 => None,
        1 => Some(": too deep"),
        2 => Some(": code without unwind information"),
        3 => Some(": the next frame lay outside the stack"),
        4 => Some(": unwind tables were not ready"),
        _ => Some(""),
    }
}

/// Names the frames of one file and interns the texts.
pub struct Frames<'a> {
    file: &'a TraceFile,
    code: CodeMap<'a>,
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, FrameId>,
    addresses: FxHashMap<(ProcessIndex, u64), Vec<FrameId>>,
}

impl<'a> Frames<'a> {
    /// Frames of this file.
    pub fn new(file: &'a TraceFile) -> Frames<'a> {
        Frames {
            file,
            code: CodeMap::new(file),
            texts: Vec::new(),
            ids: HashMap::new(),
            addresses: FxHashMap::default(),
        }
    }

    /// Frames of a stack, innermost first, inlined ones included; empty where none was taken.
    /// Where it was cut, what [`CUT`] begins stands for the frames that are missing.
    pub fn stack(&mut self, process: ProcessIndex, stack: StackId) -> Vec<FrameId> {
        let mut frames = Vec::new();
        let Some(found) = self.file.stack(process, stack) else { return frames };
        for &address in &found.frames {
            if !self.addresses.contains_key(&(process, address)) {
                let named = self.address(process, address);
                self.addresses.insert((process, address), named);
            }
            frames.extend_from_slice(&self.addresses[&(process, address)]);
        }
        if let Some(why) = why_cut(found.end).filter(|_| !frames.is_empty()) {
            frames.push(self.intern(format!("{CUT}{why})")));
        }
        frames
    }

    /// Text of a frame.
    pub fn text(&self, frame: FrameId) -> &Arc<str> {
        &self.texts[frame as usize]
    }

    /// Texts of frames.
    pub fn texts(&self, frames: &[FrameId]) -> Vec<Arc<str>> {
        frames.iter().map(|&frame| Arc::clone(self.text(frame))).collect()
    }

    fn address(&mut self, process: ProcessIndex, address: u64) -> Vec<FrameId> {
        let file = self.file;
        let mut symbols: Vec<&Symbol> = file.symbols(process, address).iter().collect();
        symbols.retain(|symbol| !file.name(symbol.function).is_empty());
        symbols.sort_by_key(|symbol| symbol.depth);
        if symbols.is_empty() {
            let text = self.code.unnamed(file, process, address);
            return vec![self.intern(text)];
        }
        symbols.into_iter().map(|symbol| self.intern(named(file, symbol))).collect()
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

fn named(file: &TraceFile, symbol: &Symbol) -> String {
    let function = file.name(symbol.function);
    let source = file.name(symbol.file);
    let module = base_name(file.name(symbol.module));
    match (source.is_empty(), symbol.line, module.is_empty()) {
        (false, 0, _) => format!("{function} ({source})"),
        (false, line, _) => format!("{function} ({source}:{line})"),
        (true, _, false) => format!("{function} ({module})"),
        (true, _, true) => function.to_owned(),
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
