//! Locates the parts of one event in the trace's text. Nothing is copied or converted until the
//! kind of event is known, because most parts are never used.

use crate::cursor::{self, Stop};
use crate::key::{KEYS, Key, key};
use crate::{number, text};

/// A stretch of the event's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextSpan {
    start: u32,
    end: u32,
}

impl TextSpan {
    /// Whether the member exists.
    pub fn is_present(self) -> bool {
        self.end != 0
    }
}

/// A member of `args`.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The key, between its quotes.
    key: TextSpan,
    value: TextSpan,
    /// Whether a field of the model has taken it.
    taken: bool,
}

/// Positions of those members of the event itself (outside of `args`) that the importer uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub phase: TextSpan,
    pub category: TextSpan,
    pub name: TextSpan,
    pub pid: TextSpan,
    pub tid: TextSpan,
    pub time: TextSpan,
    pub duration: TextSpan,
    pub id: TextSpan,
    pub scope: TextSpan,
    /// Id in `stackFrames` of the innermost frame of the event's stack.
    pub frame: TextSpan,
    pub cpu: TextSpan,
    pub weight: TextSpan,
}

/// Positions of an event's parts. One layout is reused for all events.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub fields: Fields,
    members: Vec<Member>,
    /// For each [`Key`], its index in `members` plus one; 0 if the key is absent.
    known: Vec<u16>,
    /// Number of members of the event that the importer doesn't use.
    pub others: u32,
    /// Number of members whose key occurs again later in the event or in `args`. Only the last
    /// value counts.
    pub repeated: u32,
    /// Whether `args` is not an object.
    pub odd_args: bool,
    /// Number of members of `args` beyond [`MAX_MEMBERS`].
    pub excess: u32,
}

/// Largest number of members of `args` to read.
const MAX_MEMBERS: usize = 10_000;

impl Layout {
    /// Finds the parts of the event that begins at `at`, and returns the position after it.
    pub fn read(&mut self, bytes: &[u8], at: usize) -> Result<usize, Stop> {
        self.fields = Fields::default();
        (self.others, self.repeated, self.excess, self.odd_args) = (0, 0, 0, false);
        self.members.clear();
        self.known.clear();
        self.known.resize(KEYS, 0);
        let mut at = cursor::expect(bytes, at, b'{')?;
        let first = cursor::space(bytes, at)?;
        if bytes[first] == b'}' {
            return Ok(first + 1);
        }
        loop {
            let start = cursor::expect(bytes, at, b'"')?;
            let end = cursor::string(bytes, start)?;
            at = cursor::expect(bytes, end + 1, b':')?;
            at = cursor::space(bytes, at)?;
            let fields = &mut self.fields;
            let field = match &bytes[start..end] {
                b"ph" => &mut fields.phase,
                b"cat" => &mut fields.category,
                b"name" => &mut fields.name,
                b"pid" => &mut fields.pid,
                b"tid" => &mut fields.tid,
                b"ts" => &mut fields.time,
                b"dur" => &mut fields.duration,
                b"id" => &mut fields.id,
                b"s" => &mut fields.scope,
                b"sf" => &mut fields.frame,
                b"cpu" => &mut fields.cpu,
                b"weight" => &mut fields.weight,
                b"args" => {
                    at = self.read_args(bytes, at)?;
                    let (more, after) = cursor::next(bytes, at, b'}')?;
                    at = after;
                    if !more {
                        return Ok(at);
                    }
                    continue;
                }
                // `bp` only says that an arrow binds to the enclosing slice, so ignore it.
                b"bp" => {
                    at = cursor::value(bytes, at)?;
                    let (more, after) = cursor::next(bytes, at, b'}')?;
                    at = after;
                    if !more {
                        return Ok(at);
                    }
                    continue;
                }
                _ => {
                    self.others += 1;
                    &mut TextSpan::default()
                }
            };
            let value = cursor::value(bytes, at)?;
            self.repeated += u32::from(field.is_present());
            *field = place(at, value);
            let (more, after) = cursor::next(bytes, value, b'}')?;
            at = after;
            if !more {
                return Ok(at);
            }
        }
    }

    fn read_args(&mut self, bytes: &[u8], at: usize) -> Result<usize, Stop> {
        if !self.members.is_empty() {
            self.repeated += 1;
            self.members.clear();
            self.known.fill(0);
        }
        if bytes[at] != b'{' {
            self.odd_args = bytes[at] != b'n';
            return cursor::value(bytes, at);
        }
        let mut at = cursor::space(bytes, at + 1)?;
        if bytes[at] == b'}' {
            return Ok(at + 1);
        }
        loop {
            let start = cursor::expect(bytes, at, b'"')?;
            let end = cursor::string(bytes, start)?;
            at = cursor::expect(bytes, end + 1, b':')?;
            at = cursor::space(bytes, at)?;
            let value = cursor::value(bytes, at)?;
            let member = Member { key: place(start, end), value: place(at, value), taken: false };
            let key = key(&bytes[start..end]);
            if key != Key::Other && self.known[key as usize] != 0 {
                self.repeated += 1;
                self.members[usize::from(self.known[key as usize]) - 1] = member;
            } else if self.members.len() < MAX_MEMBERS {
                self.members.push(member);
                if key != Key::Other {
                    self.known[key as usize] = self.members.len() as u16;
                }
            } else {
                self.excess += 1;
            }
            let (more, after) = cursor::next(bytes, value, b'}')?;
            at = after;
            if !more {
                return Ok(at);
            }
        }
    }
}

#[inline(always)]
fn place(start: usize, end: usize) -> TextSpan {
    // This can't overflow, because the window that events are read from is smaller than 4 GiB.
    TextSpan { start: start as u32, end: end as u32 }
}

/// An event: its text, and where its parts are.
pub(crate) struct Event<'a> {
    bytes: &'a [u8],
    layout: &'a mut Layout,
}

impl<'a> Event<'a> {
    /// Combines a layout with the text that it was read from.
    pub fn new(bytes: &'a [u8], layout: &'a mut Layout) -> Event<'a> {
        Event { bytes, layout }
    }

    /// Returns the positions of the event's own members.
    #[inline(always)]
    pub fn fields(&self) -> Fields {
        self.layout.fields
    }

    /// Returns the layout of the event.
    pub fn layout(&self) -> &Layout {
        self.layout
    }

    /// Returns the text of a value, quotes included.
    #[inline(always)]
    pub fn text(&self, place: TextSpan) -> &'a [u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }

    /// Returns the text of a value, without quotes if it has any.
    #[inline(always)]
    pub fn inner(&self, place: TextSpan) -> &'a [u8] {
        number::unquoted(self.text(place))
    }

    #[inline(always)]
    fn member(&mut self, key: Key) -> Option<&mut Member> {
        let index = usize::from(self.layout.known[key as usize]);
        self.layout.members.get_mut(index.checked_sub(1)?)
    }

    /// Whether `args` has a member.
    #[inline(always)]
    pub fn has(&self, key: Key) -> bool {
        self.layout.known[key as usize] != 0
    }

    /// Returns the text of a member of `args`, which still counts as not taken.
    #[inline(always)]
    pub fn peek(&mut self, key: Key) -> Option<&'a [u8]> {
        let place = self.member(key)?.value;
        Some(self.text(place))
    }

    /// Returns the text of a member of `args`, which then counts as taken.
    #[inline(always)]
    pub fn take(&mut self, key: Key) -> Option<&'a [u8]> {
        let member = self.member(key)?;
        member.taken = true;
        let place = member.value;
        Some(self.text(place))
    }

    /// Returns the text between the quotes of a member of `args`, which then counts as taken.
    #[inline(always)]
    pub fn take_inner(&mut self, key: Key) -> Option<&'a [u8]> {
        self.take(key).map(number::unquoted)
    }

    /// Returns a member that is a whole number, which then counts as taken. A negative number means
    /// "none" in Kineto. A value of another type isn't taken.
    #[inline(always)]
    pub fn take_u64(&mut self, key: Key) -> Option<u64> {
        let member = self.member(key)?;
        let place = member.value;
        let text = number::unquoted(self.text(place));
        match number::unsigned(text) {
            Some(value) => {
                self.take(key);
                Some(value)
            }
            None => {
                if number::integer(text).is_some() {
                    self.take(key);
                }
                None
            }
        }
    }

    /// Does the same as [`Self::take_u64`] for 32 bits.
    #[inline(always)]
    pub fn take_u32(&mut self, key: Key) -> Option<u32> {
        let place = self.member(key)?.value;
        match number::integer(number::unquoted(self.text(place))) {
            Some(value) if value > i64::from(u32::MAX) => None,
            Some(value) => {
                self.take(key);
                u32::try_from(value).ok()
            }
            None => None,
        }
    }

    /// Returns the members of `args` in order, as keys and values.
    pub fn members(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let bytes = self.bytes;
        let text = move |place: TextSpan| &bytes[place.start as usize..place.end as usize];
        self.layout.members.iter().map(move |member| (text(member.key), text(member.value)))
    }

    /// Writes the members of `args` that no field took as a JSON object; writes nothing if there
    /// are no such members. Returns how many members could not be written, and whether any had to
    /// be repaired.
    #[inline]
    pub fn rest(&self, out: &mut Vec<u8>) -> (u32, bool) {
        out.clear();
        let (mut refused, mut mended) = (self.layout.excess, false);
        for member in self.layout.members.iter().filter(|member| !member.taken) {
            let length = out.len();
            out.push(if length == 0 { b'{' } else { b',' });
            mended |= text::push_string(self.text(member.key), out);
            out.push(b':');
            match text::push_value(self.text(member.value), out) {
                Ok(was_mended) => mended |= was_mended,
                Err(_) => {
                    out.truncate(length);
                    refused += 1;
                }
            }
        }
        if !out.is_empty() {
            out.push(b'}');
        }
        (refused, mended)
    }
}
