//! Executes a pickle's opcodes on a stack machine that can only build values.

use super::error::PickleError;
use super::opcodes::{self as op, refused};
use super::values::{Arena, Value};

/// Pickle protocols that are supported.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 2..=5;

/// Whether bytes begin as a pickle of protocol 2 or later does.
pub(crate) fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [op::PROTO, protocol, ..] if (2..16).contains(protocol))
}

/// Reads a pickle. Data after its end is ignored, as in Python.
///
/// # Errors
///
/// Returns the position of the first opcode that is refused, isn't valid at its place, or is cut
/// off.
pub(crate) fn read(input: &[u8]) -> Result<(Arena<'_>, Value), PickleError> {
    // An arena stores positions of texts in 32 bits, so refuse longer input.
    if u32::try_from(input.len()).is_err() {
        return Err(PickleError::new(0, "the pickle has 4 GiB or more"));
    }
    let arena = Arena { input, ..Arena::default() };
    let mut machine = Machine {
        arena,
        at: 0,
        opcode_at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    let value = machine.run()?;
    Ok((machine.arena, value))
}

struct Machine<'i> {
    arena: Arena<'i>,
    /// Position of the next byte.
    at: usize,
    /// Position of the current opcode.
    opcode_at: usize,
    stack: Vec<Value>,
    /// Heights of the stack at marks.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
}

impl<'i> Machine<'i> {
    fn run(&mut self) -> Result<Value, PickleError> {
        if !is_pickle(self.arena.input) {
            let why = "the file is not a pickle of protocol 2 to 5 (no PROTO opcode)";
            return Err(PickleError::new(0, why));
        }
        loop {
            self.opcode_at = self.at;
            let [opcode] = self.take()?;
            match opcode {
                op::STOP => return self.pop(),
                op::BINGET | op::LONG_BINGET | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => {
                    self.memory(opcode)?;
                }
                op::EMPTY_LIST | op::LIST | op::APPEND | op::APPENDS => self.list(opcode)?,
                op::EMPTY_DICT | op::DICT | op::SETITEM | op::SETITEMS => self.dict(opcode)?,
                op::EMPTY_TUPLE | op::TUPLE | op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                    self.tuple(opcode)?;
                }
                op::MARK => self.marks.push(self.stack.len()),
                op::PROTO => {
                    let [protocol] = self.take()?;
                    if !PROTOCOLS.contains(&protocol) {
                        return Err(self.wrong(format!("pickle protocol {protocol}, not 2 to 5")));
                    }
                }
                op::FRAME => {
                    // The length of a frame is only a hint for readers from a pipe, so skip it.
                    let _: [u8; 8] = self.take()?;
                }
                _ => {
                    let value = self.scalar(opcode)?;
                    self.stack.push(value);
                }
            }
        }
    }

    fn wrong(&self, why: impl Into<String>) -> PickleError {
        PickleError::new(self.opcode_at, why)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let bytes = self.arena.input[self.at..].first_chunk::<N>();
        let bytes = *bytes.ok_or_else(|| PickleError::cut(self.opcode_at))?;
        self.at += N;
        Ok(bytes)
    }

    fn take_many(&mut self, length: u64) -> Result<&'i [u8], PickleError> {
        let input: &'i [u8] = self.arena.input;
        let rest = &input[self.at..];
        let bytes = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let bytes = bytes.ok_or_else(|| PickleError::cut(self.opcode_at))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn pop(&mut self) -> Result<Value, PickleError> {
        let base = self.marks.last().copied().unwrap_or(0);
        match self.stack.pop() {
            Some(value) if self.stack.len() >= base => Ok(value),
            _ => Err(self.wrong("an opcode needs a value that is not on the stack")),
        }
    }

    /// Pops the last mark, and returns the stack's height at that mark.
    fn mark(&mut self) -> Result<usize, PickleError> {
        let height = self.marks.pop().filter(|height| *height <= self.stack.len());
        height.ok_or_else(|| self.wrong("an opcode needs a mark that was not set"))
    }

    fn scalar(&mut self, opcode: u8) -> Result<Value, PickleError> {
        Ok(match opcode {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BININT => Value::Int(i32::from_le_bytes(self.take()?).into()),
            op::BININT1 => Value::Int(u8::from_le_bytes(self.take()?).into()),
            op::BININT2 => Value::Int(u16::from_le_bytes(self.take()?).into()),
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.take()?)),
            op::LONG1 => {
                let [length] = self.take()?;
                self.long(length.into())?
            }
            op::LONG4 => {
                let length = u32::from_le_bytes(self.take()?);
                self.long(length.into())?
            }
            op::SHORT_BINUNICODE => {
                let [length] = self.take()?;
                self.text(length.into())?
            }
            op::BINUNICODE => {
                let length = u32::from_le_bytes(self.take()?);
                self.text(length.into())?
            }
            op::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.take()?);
                self.text(length)?
            }
            _ => return Err(self.wrong(unread(opcode))),
        })
    }

    fn text(&mut self, length: u64) -> Result<Value, PickleError> {
        let start = self.at;
        let bytes = self.take_many(length)?;
        // `read` has refused input whose positions need more than 32 bits.
        Ok(Value::Text(start as u32, bytes.len() as u32))
    }

    /// Reads a two's complement number of this many bytes.
    fn long(&mut self, length: u64) -> Result<Value, PickleError> {
        let bytes = self.take_many(length)?;
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let fill = if is_negative { 0xff } else { 0 };
        if bytes.len() > 9 && bytes[9..].iter().any(|byte| *byte != fill) {
            return Err(self.wrong("an integer of more than 64 bits"));
        }
        let mut wide = [fill; 16];
        let kept = bytes.len().min(9);
        wide[..kept].copy_from_slice(&bytes[..kept]);
        let number = i128::from_le_bytes(wide);
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => Ok(Value::Int(number)),
            (_, Ok(number)) => Ok(Value::Large(number)),
            _ => Err(self.wrong("an integer of more than 64 bits")),
        }
    }

    fn memory(&mut self, opcode: u8) -> Result<(), PickleError> {
        let index = match opcode {
            op::MEMOIZE => self.memo.len(),
            op::BINGET | op::BINPUT => {
                let [index] = self.take()?;
                index.into()
            }
            _ => u32::from_le_bytes(self.take()?) as usize,
        };
        if matches!(opcode, op::BINGET | op::LONG_BINGET) {
            let value = self.memo.get(index).copied().flatten();
            let value = value
                .ok_or_else(|| self.wrong(format!("memo {index} is read before it is set")))?;
            self.stack.push(value);
            return Ok(());
        }
        // Python numbers memos one by one, and each takes at least one byte of the input. Without
        // this bound, an opcode of five bytes could make the reader allocate gigabytes.
        if index > self.arena.input.len() {
            return Err(self.wrong(format!("memo {index} in so short a pickle")));
        }
        let value = self.pop()?;
        self.stack.push(value);
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(value);
        Ok(())
    }

    fn sequence(&mut self, items: Vec<Value>) -> u32 {
        self.arena.sequences.push(items);
        // This fits 32 bits, because each sequence takes at least one byte of the input.
        (self.arena.sequences.len() - 1) as u32
    }

    fn list(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            op::EMPTY_LIST => {
                let at = self.sequence(Vec::new());
                self.stack.push(Value::List(at));
            }
            op::LIST => {
                let from = self.mark()?;
                let items = self.stack.split_off(from);
                let at = self.sequence(items);
                self.stack.push(Value::List(at));
            }
            op::APPEND => {
                let item = self.pop()?;
                let at = self.list_below()?;
                self.arena.sequences[at].push(item);
            }
            _ => {
                let from = self.mark()?;
                let at = match from.checked_sub(1).map(|below| self.stack[below]) {
                    Some(Value::List(at)) => at as usize,
                    _ => return Err(self.wrong("items are added to an object that is not a list")),
                };
                self.arena.sequences[at].extend_from_slice(&self.stack[from..]);
                self.stack.truncate(from);
            }
        }
        Ok(())
    }

    fn list_below(&self) -> Result<usize, PickleError> {
        match self.stack.last() {
            Some(Value::List(at)) => Ok(*at as usize),
            _ => Err(self.wrong("an item is added to an object that is not a list")),
        }
    }

    fn dict(&mut self, opcode: u8) -> Result<(), PickleError> {
        if opcode == op::EMPTY_DICT {
            self.arena.dicts.push(Vec::new());
            self.stack.push(Value::Dict((self.arena.dicts.len() - 1) as u32));
            return Ok(());
        }
        let from = match opcode {
            op::SETITEM => self.stack.len().saturating_sub(2),
            _ => self.mark()?,
        };
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(self.wrong("a dictionary has a key without a value"));
        }
        if opcode == op::DICT {
            self.arena.dicts.push(Vec::new());
            self.stack.insert(from, Value::Dict((self.arena.dicts.len() - 1) as u32));
            return self.set_items(from + 1);
        }
        self.set_items(from)
    }

    /// Moves the pairs above a stack height into the dictionary below them.
    fn set_items(&mut self, from: usize) -> Result<(), PickleError> {
        let at = match from.checked_sub(1).and_then(|below| self.stack.get(below)) {
            Some(Value::Dict(at)) => *at as usize,
            _ => return Err(self.wrong("items are set in an object that is not a dictionary")),
        };
        let pairs = self.stack[from..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
        self.arena.dicts[at].extend(pairs);
        self.stack.truncate(from);
        Ok(())
    }

    fn tuple(&mut self, opcode: u8) -> Result<(), PickleError> {
        let base = self.marks.last().copied().unwrap_or(0);
        let from = match opcode {
            op::TUPLE => self.mark()?,
            op::EMPTY_TUPLE => self.stack.len(),
            _ => {
                let count = usize::from(opcode - op::TUPLE1) + 1;
                let from = self.stack.len().checked_sub(count).filter(|from| *from >= base);
                from.ok_or_else(|| self.wrong("a tuple needs values that are not on the stack"))?
            }
        };
        let items = self.stack.split_off(from);
        let at = self.sequence(items);
        self.stack.push(Value::Tuple(at));
        Ok(())
    }
}

/// Returns the reason why an opcode is refused.
fn unread(opcode: u8) -> String {
    match refused(opcode) {
        Some((name, true)) => format!(
            "opcode {name} makes Python import or call something, which a memory snapshot never \
             does; refused"
        ),
        Some((name, false)) => format!("opcode {name}, which no memory snapshot has"),
        None => format!("byte {opcode:#04x}, which is no opcode of a pickle"),
    }
}
