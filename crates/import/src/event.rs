//! One event of a trace, as places in the text: nothing is copied or converted
//! until it is known what the event is.

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
    /// Whether the event has the member.
    pub fn is_there(self) -> bool {
        self.end != 0
    }
}

/// A member of `args`.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The key, between its quotes.
    key: TextSpan,
    value: TextSpan,
    /// A field of the model has it.
    taken: bool,
}

/// The members of an event's own that matter here.
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
    /// The innermost frame of its stack, by its id in `stackFrames`.
    pub frame: TextSpan,
    pub cpu: TextSpan,
    pub weight: TextSpan,
}

/// Where an event's parts are. One is used again for every event.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub fields: Fields,
    members: Vec<Member>,
    /// For each [`Key`] one more than its place in `members`; 0 for none.
    known: Vec<u16>,
    /// Members of the event that no field is for.
    pub others: u32,
    /// Members that appeared twice, of the event or of `args`; the last one counts.
    pub repeated: u32,
    /// Whether `args` is something else than an object.
    pub odd_args: bool,
    /// Members of `args` beyond those that are read.
    pub excess: u32,
}

/// Members of `args` that are read.
const MAX_MEMBERS: usize = 10_000;

impl Layout {
    /// Finds the parts of the event that begins at `at`; gives the position after it.
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
                // Means only that an arrow binds to the slice around it.
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
            self.repeated += u32::from(field.is_there());
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
    // The window that events are read from is smaller than 4 GiB.
    TextSpan { start: start as u32, end: end as u32 }
}

/// An event: its text, and where its parts are.
pub(crate) struct Event<'a> {
    bytes: &'a [u8],
    layout: &'a mut Layout,
}

impl<'a> Event<'a> {
    /// Joins a layout with the text that it was read from.
    pub fn new(bytes: &'a [u8], layout: &'a mut Layout) -> Event<'a> {
        Event { bytes, layout }
    }

    /// Where its own members are.
    #[inline(always)]
    pub fn fields(&self) -> Fields {
        self.layout.fields
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        self.layout
    }

    /// The text of a value, quotes included.
    #[inline(always)]
    pub fn text(&self, place: TextSpan) -> &'a [u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }

    /// The text of a value, without quotes if it has any.
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

    /// The text of a member of `args`; it still counts as not taken.
    #[inline(always)]
    pub fn peek(&mut self, key: Key) -> Option<&'a [u8]> {
        let place = self.member(key)?.value;
        Some(self.text(place))
    }

    /// The text of a member of `args`.
    #[inline(always)]
    pub fn take(&mut self, key: Key) -> Option<&'a [u8]> {
        let member = self.member(key)?;
        member.taken = true;
        let place = member.value;
        Some(self.text(place))
    }

    /// What is between the quotes of a member of `args`.
    #[inline(always)]
    pub fn take_inner(&mut self, key: Key) -> Option<&'a [u8]> {
        self.take(key).map(number::unquoted)
    }

    /// A member that is a whole number. Negative ones mean "none" in Kineto; a value
    /// of another type stays among the rest.
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

    /// As [`Self::take_u64`], for smaller fields.
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

    /// The members of `args` in order: key and value.
    pub fn members(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let bytes = self.bytes;
        let text = move |place: TextSpan| &bytes[place.start as usize..place.end as usize];
        self.layout.members.iter().map(move |member| (text(member.key), text(member.value)))
    }

    /// Writes the members of `args` that no field took as a JSON object; nothing
    /// if there are none. Returns how many could not be kept, and whether any had
    /// to be mended.
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
