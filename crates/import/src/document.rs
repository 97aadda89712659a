//! Reads the outer structure of a trace: an array of events, or an object that contains one.
//!
//! The trace is read in one pass, with one event in memory. After invalid JSON, reading continues
//! at the next event. No byte is read more than a few times, so the time is proportional to the
//! trace's length.

use crate::cursor::{self, Stop};
use crate::error::ImportError;
use crate::event::{Event, Layout};
use crate::text;
use crate::window::Window;

/// Receives the parts of a trace.
pub(crate) trait Sink {
    /// Receives an event, which the text contains completely.
    fn event(&mut self, event: Event<'_>) -> Result<(), ImportError>;
    /// Receives an element of the list `samples`.
    fn list_sample(&mut self, event: Event<'_>);
    /// Receives a member of the outermost object. Events and samples are passed to the other
    /// methods.
    fn fact(&mut self, key: &[u8], value: &[u8]);
    /// Receives a part that had to be left out.
    fn broken(&mut self, what: Malformed, offset: u64);
}

/// Reasons for leaving a part out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// An event that is not JSON.
    NotJson,
    /// An element of the event list is not an object.
    NoObject,
    /// An event or a value too long to be read.
    TooLong,
    /// The text ends within a value. Everything from here on is missing.
    CutOff,
    /// The text from here on is not JSON, and no event follows. All of it is left out.
    Tail,
}

/// Reads a trace from its first byte to its last.
pub(crate) fn walk(window: &mut Window, sink: &mut impl Sink) -> Result<(), ImportError> {
    let layout = Layout::default();
    let list = List::Events { is_bare: false };
    let mut walk =
        Walk { window, sink, layout, list, has_events: false, has_phase: false, is_cut: false };
    walk.skip(b"\xef\xbb\xbf")?;
    walk.document()?;
    walk.rest()
}

/// A list whose elements are read one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// The list of events. `is_bare`: the file is only this list, without an object around it.
    Events { is_bare: bool },
    /// The list of CPU samples (`samples`).
    Samples,
}

struct Walk<'a, S> {
    window: &'a mut Window,
    sink: &'a mut S,
    layout: Layout,
    list: List,
    /// Whether an event was read.
    has_events: bool,
    /// Whether any event had a phase.
    has_phase: bool,
    /// Whether the text ended too early.
    is_cut: bool,
}

impl<S: Sink> Walk<'_, S> {
    fn document(&mut self) -> Result<(), ImportError> {
        match self.peek()? {
            Some(b'[') => {
                self.window.consume(1);
                self.elements(List::Events { is_bare: true })?;
                // Any list of objects would parse as a trace, so require that an event has a phase.
                match self.has_phase {
                    true => Ok(()),
                    false => {
                        let why = "its list has no event, that is, no object with `ph`";
                        Err(self.not_a_trace(why))
                    }
                }
            }
            Some(b'{') => {
                self.window.consume(1);
                self.object()
            }
            Some(_) => Err(self.not_a_trace("it does not begin with { or [")),
            None => Err(self.not_a_trace("the file is empty")),
        }
    }

    /// Checks that nothing follows the document. Reading to the end also makes the window verify
    /// the checksum of a compressed file.
    fn rest(&mut self) -> Result<(), ImportError> {
        if self.peek()?.is_none() {
            return Ok(());
        }
        if !self.is_cut {
            self.broken(Malformed::Tail, self.window.offset());
        }
        loop {
            let count = self.window.bytes().len();
            self.window.consume(count);
            if !self.window.more()? {
                return Ok(());
            }
        }
    }

    /// Reports to the sink that a part is left out.
    fn broken(&mut self, what: Malformed, offset: u64) {
        self.is_cut |= matches!(what, Malformed::CutOff | Malformed::Tail);
        self.sink.broken(what, offset);
    }

    fn not_a_trace(&self, why: &str) -> ImportError {
        let why = match self.window.cut() {
            Some(cut) => cut.to_owned(),
            None => why.to_owned(),
        };
        let (path, offset) = (self.window.path().to_path_buf(), self.window.offset());
        ImportError::NotATrace { path, offset, why }
    }

    /// Skips these bytes if the text continues with them.
    fn skip(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        while self.window.bytes().len() < bytes.len() && self.window.more()? {}
        if self.window.bytes().starts_with(bytes) {
            self.window.consume(bytes.len());
        }
        Ok(())
    }

    /// Returns the next byte that is not white space; `None` at the end.
    fn peek(&mut self) -> Result<Option<u8>, ImportError> {
        loop {
            let bytes = self.window.bytes();
            match cursor::space(bytes, 0) {
                Ok(at) => {
                    let byte = bytes[at];
                    self.window.consume(at);
                    return Ok(Some(byte));
                }
                Err(_) => {
                    let count = bytes.len();
                    self.window.consume(count);
                    if !self.window.more()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Runs a scan, and fetches more text until the scan succeeds.
    fn enough(
        &mut self,
        scan: impl Fn(&[u8]) -> Result<usize, Stop>,
    ) -> Result<Result<usize, Stop>, ImportError> {
        loop {
            match scan(self.window.bytes()) {
                Err(Stop::End) if !self.window.is_full() && self.window.more()? => (),
                result => return Ok(result),
            }
        }
    }

    /// Reads the members of the outermost object.
    fn object(&mut self) -> Result<(), ImportError> {
        let mut has_events = false;
        loop {
            match self.peek()? {
                Some(b'}') => {
                    self.window.consume(1);
                    break;
                }
                Some(b',') => {
                    self.window.consume(1);
                    continue;
                }
                Some(b'"') => (),
                Some(_) if !has_events => return Err(self.not_a_trace("no JSON")),
                Some(_) => {
                    self.broken(Malformed::Tail, self.window.offset());
                    return Ok(());
                }
                None if !has_events => {
                    return Err(self.not_a_trace("it ends before its events"));
                }
                None => {
                    self.broken(Malformed::CutOff, self.window.offset());
                    return Ok(());
                }
            }
            let key = self.enough(|bytes| {
                let end = cursor::string(bytes, 1)?;
                cursor::space(bytes, cursor::expect(bytes, end + 1, b':')?)
            })?;
            let Ok(value_at) = key else {
                if !has_events {
                    return Err(self.not_a_trace("no JSON"));
                }
                self.broken(Malformed::Tail, self.window.offset());
                return Ok(());
            };
            let bytes = self.window.bytes();
            let key_end = cursor::string(bytes, 1).unwrap_or(1);
            let is_list = bytes[value_at] == b'[';
            if &bytes[1..key_end] == b"traceEvents" && is_list {
                has_events = true;
                self.window.consume(value_at + 1);
                if !self.elements(List::Events { is_bare: false })? {
                    return Ok(());
                }
                continue;
            }
            if &bytes[1..key_end] == b"samples" && is_list {
                self.window.consume(value_at + 1);
                if !self.elements(List::Samples)? {
                    return Ok(());
                }
                continue;
            }
            if !self.member(value_at, key_end, has_events)? {
                return Ok(());
            }
        }
        if has_events { Ok(()) } else { Err(self.not_a_trace("it has no list `traceEvents`")) }
    }

    /// Reads one member other than the events. Returns false if the text ends within the member.
    fn member(
        &mut self,
        value_at: usize,
        key_end: usize,
        has_events: bool,
    ) -> Result<bool, ImportError> {
        match self.enough(|bytes| cursor::value(bytes, value_at))? {
            Ok(end) => {
                let bytes = self.window.bytes();
                self.sink.fact(&bytes[1..key_end], &bytes[value_at..end]);
                self.window.consume(end);
                Ok(true)
            }
            Err(Stop::End) if self.window.is_full() => {
                self.broken(Malformed::TooLong, self.window.offset());
                self.window.consume(value_at);
                self.skip_value()
            }
            _ if !has_events => Err(self.not_a_trace("a value here does not end")),
            _ => {
                self.broken(Malformed::CutOff, self.window.offset());
                Ok(false)
            }
        }
    }

    /// Reads the elements of a list, after its opening bracket. Returns false if the text ended
    /// within the list, except that a bare list may lack its closing bracket.
    fn elements(&mut self, list: List) -> Result<bool, ImportError> {
        self.list = list;
        loop {
            // In the usual case, one scan of the window finds both the separator and the event.
            let bytes = self.window.bytes();
            let mut at = 0;
            let byte = loop {
                match cursor::space(bytes, at) {
                    Ok(found) if bytes[found] == b',' => at = found + 1,
                    Ok(found) => {
                        at = found;
                        break bytes[found];
                    }
                    Err(_) => {
                        at = bytes.len();
                        break 0;
                    }
                }
            };
            let at_end = at == bytes.len();
            self.window.consume(at);
            if at_end {
                if self.window.more()? {
                    continue;
                }
                if !self.has_events {
                    return Err(self.not_a_trace("it ends before its first event"));
                }
                let is_bare = list == List::Events { is_bare: true };
                if !is_bare || self.window.cut().is_some() {
                    self.broken(Malformed::CutOff, self.window.offset());
                }
                return Ok(false);
            }
            match byte {
                b'{' => self.one_element()?,
                b']' => {
                    self.window.consume(1);
                    return Ok(true);
                }
                _ => self.odd_element()?,
            }
        }
    }

    /// Reads the object at the window's start.
    #[inline]
    fn one_element(&mut self) -> Result<(), ImportError> {
        loop {
            let bytes = self.window.bytes();
            match self.layout.read(bytes, 0) {
                Ok(end) => {
                    if self.list == List::Samples {
                        self.sink.list_sample(Event::new(bytes, &mut self.layout));
                    } else {
                        self.has_phase |= self.layout.fields.phase.is_present();
                        self.sink.event(Event::new(bytes, &mut self.layout))?;
                        self.has_events = true;
                    }
                    self.window.consume(end);
                    return Ok(());
                }
                Err(Stop::End) if self.window.is_full() => return self.too_long(),
                Err(Stop::End) if self.window.more()? => (),
                Err(Stop::End) => return self.cut_off(),
                Err(Stop::Bad(at)) => return self.not_json(at),
            }
        }
    }

    /// Handles an element that is not an object.
    fn odd_element(&mut self) -> Result<(), ImportError> {
        match self.enough(|bytes| cursor::value(bytes, 0))? {
            Ok(end) => {
                let is_json =
                    text::push_value(&self.window.bytes()[..end], &mut Vec::new()).is_ok();
                let what = if is_json { Malformed::NoObject } else { Malformed::NotJson };
                self.broken(what, self.window.offset());
                self.window.consume(end);
                Ok(())
            }
            Err(Stop::End) if self.window.is_full() => self.too_long(),
            Err(Stop::End) => self.cut_off(),
            Err(Stop::Bad(at)) => self.not_json(at),
        }
    }

    fn too_long(&mut self) -> Result<(), ImportError> {
        self.broken(Malformed::TooLong, self.window.offset());
        self.skip_value()?;
        Ok(())
    }

    /// Handles text that ends within an element.
    fn cut_off(&mut self) -> Result<(), ImportError> {
        if !self.has_events {
            return Err(self.not_a_trace("it ends within its first event"));
        }
        self.broken(Malformed::CutOff, self.window.offset());
        let rest = self.window.bytes().len();
        self.window.consume(rest);
        Ok(())
    }

    /// Handles text that is not JSON at `at` bytes into the window: reading continues at the next
    /// event.
    fn not_json(&mut self, at: usize) -> Result<(), ImportError> {
        self.broken(Malformed::NotJson, self.window.offset() + at as u64);
        self.window.consume(at);
        self.next_event()
    }

    /// Moves to the next `{` after `},`, where an event probably begins. If none follows, moves to
    /// the end of the text.
    fn next_event(&mut self) -> Result<(), ImportError> {
        let mut before = [0_u8; 2];
        loop {
            let bytes = self.window.bytes();
            for (at, byte) in bytes.iter().enumerate() {
                match byte {
                    b' ' | b'\n' | b'\r' | b'\t' => continue,
                    b'{' if before == *b"}," => {
                        self.window.consume(at);
                        return Ok(());
                    }
                    _ => before = [before[1], *byte],
                }
            }
            let count = bytes.len();
            self.window.consume(count);
            if !self.window.more()? {
                return Ok(());
            }
        }
    }

    /// Skips a value of any length in constant memory. Returns false if the text ends within the
    /// value.
    fn skip_value(&mut self) -> Result<bool, ImportError> {
        let (mut depth, mut in_string, mut escaped) = (0_u64, false, false);
        loop {
            let bytes = self.window.bytes();
            for (at, byte) in bytes.iter().enumerate() {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if in_string => escaped = true,
                    b'"' => in_string = !in_string,
                    _ if in_string => (),
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => continue,
                }
                if depth == 0 && !in_string && !escaped {
                    self.window.consume(at + 1);
                    return Ok(true);
                }
            }
            let count = bytes.len();
            self.window.consume(count);
            if !self.window.more()? {
                self.broken(Malformed::CutOff, self.window.offset());
                return Ok(false);
            }
        }
    }
}
