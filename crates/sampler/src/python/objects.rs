//! Reads variables and attributes of Python objects in another process.
//!
//! The reader doesn't hold the GIL. If the program changes an object meanwhile, its parts don't fit
//! together, and the value counts as missing.

use super::code::text;
use super::layout::{Attributes, Objects};
use super::memory::ProcessMemory;
use tprof_wire::python::{Layout, Memory as _};

/// Offset of an object's type.
const TYPE: u64 = 8;
/// Offsets in a type: the size of its objects, its flags, and the offset of their dictionary.
const BASIC_SIZE: u64 = 32;
const FLAGS: u64 = 168;
const DICTIONARY: u64 = 288;
/// Flags of a type: its objects have a dictionary before them (from 3.11), or values within them
/// (from 3.13).
const MANAGED: u64 = 1 << 4;
const INLINE: u64 = 1 << 2;
/// Offsets in a dictionary: its keys, and its values if it shares its keys.
const KEYS: u64 = 32;
const VALUES: u64 = 40;
/// Largest number of keys or variables that are examined.
const MAX_ENTRIES: u64 = 256;

/// Reads the objects of a process.
pub struct ObjectReader<'a> {
    pub memory: &'a ProcessMemory,
    pub layout: &'a Layout,
    pub objects: Objects,
}

impl ObjectReader<'_> {
    fn word(&self, at: u64) -> Option<u64> {
        let mut memory = self.memory;
        memory.u64(at)
    }

    fn byte(&self, at: u64) -> Option<u8> {
        let mut memory = self.memory;
        memory.u8(at)
    }

    /// Returns the local variable of a frame with this index.
    pub fn local(&self, frame: u64, place: u64) -> Option<u64> {
        let value = self.word(frame.wrapping_add(self.objects.locals + 8 * place))?;
        // From 3.14 on, the low bits of a variable are tags.
        Some(value & !7).filter(|value| *value != 0)
    }

    /// Returns the local variable of a frame with this name.
    pub fn local_named(&self, frame: u64, code: u64, name: &str) -> Option<u64> {
        let names = self.word(code.wrapping_add(self.objects.local_names))?;
        let count = self.word(names.wrapping_add(16))?.min(MAX_ENTRIES);
        let is_it = |place: &u64| {
            let at = self.word(names.wrapping_add(24 + 8 * place));
            at.is_some_and(|at| self.string(at).is_some_and(|text| text == name))
        };
        self.local(frame, (0..count).find(is_it)?)
    }

    /// Returns the value of an integer object, if it is from 0 to 2^30.
    pub fn integer(&self, at: u64) -> Option<u32> {
        let head = self.word(at.wrapping_add(16))?;
        let digits = match self.objects.tagged_integers {
            // The low bits are the sign: 0 means positive, and 1 means zero.
            true if head & 3 < 2 => head >> 3,
            true => return None,
            false => head,
        };
        match digits {
            0 => Some(0),
            1 => {
                let mut memory = self.memory;
                memory.u32(at.wrapping_add(24))
            }
            _ => None,
        }
    }

    /// Returns the content of a string object.
    pub fn string(&self, at: u64) -> Option<String> {
        text(self.memory, self.layout, at)
    }

    /// Returns the value of an attribute, if it is a string.
    pub fn string_attribute(&self, object: u64, name: &str) -> Option<String> {
        let (key, value) = self.attribute(object, name)?;
        let is_string =
            self.word(value.wrapping_add(TYPE))? == self.word(key.wrapping_add(TYPE))?;
        if is_string { self.string(value) } else { None }
    }

    /// Returns an attribute's key (a string object) and its value.
    fn attribute(&self, object: u64, name: &str) -> Option<(u64, u64)> {
        let of = self.word(object.wrapping_add(TYPE))?;
        let flags = self.word(of.wrapping_add(FLAGS))?;
        let managed = flags & MANAGED != 0;
        let before = |words: u64| self.word(object.wrapping_sub(8 * words));
        let shared = || self.word(of.wrapping_add(self.objects.shared_keys));
        let dictionary = match self.objects.attributes {
            Attributes::OwnValues if managed => match before(3)? {
                0 => return self.find(shared()?, Some(before(4)?), name),
                dictionary => dictionary,
            },
            Attributes::Tagged if managed => match before(3)? {
                values if values & 1 == 1 => return self.find(shared()?, Some(values + 1), name),
                dictionary => dictionary,
            },
            Attributes::Inline if managed => match before(3)? {
                0 if flags & INLINE != 0 => {
                    let values = object.wrapping_add(self.word(of.wrapping_add(BASIC_SIZE))?);
                    let is_valid = self.byte(values.wrapping_add(3))? == 1;
                    return self.find(shared()?, Some(values + 8).filter(|_| is_valid), name);
                }
                dictionary => dictionary,
            },
            _ => {
                let offset = self.word(of.wrapping_add(DICTIONARY))?;
                let offset = Some(offset).filter(|offset| (1..4096).contains(offset))?;
                self.word(object.wrapping_add(offset))?
            }
        };
        let values = self.word(dictionary.wrapping_add(VALUES))?;
        let values = (values != 0).then_some(match self.objects.attributes {
            Attributes::Inline => values.wrapping_add(8),
            _ => values,
        });
        self.find(self.word(dictionary.wrapping_add(KEYS))?, values, name)
    }

    /// Finds the key with this name, and returns it with its value. The value is in `values`, or
    /// next to the key if there are none.
    fn find(&self, keys: u64, values: Option<u64>, name: &str) -> Option<(u64, u64)> {
        let (entries, size, count) = match self.objects.attributes {
            Attributes::Dictionary => {
                let slots = self.word(keys.wrapping_add(8))?;
                let width = match slots {
                    0..=0xff => 1,
                    0x100..=0xffff => 2,
                    _ => return None,
                };
                (keys.wrapping_add(40 + slots * width), 24, self.word(keys.wrapping_add(32))?)
            }
            _ => {
                let bytes = self.byte(keys.wrapping_add(9)).filter(|log| *log < 24)?;
                let size = if self.byte(keys.wrapping_add(10))? == 0 { 24 } else { 16 };
                (keys.wrapping_add(32 + (1 << bytes)), size, self.word(keys.wrapping_add(24))?)
            }
        };
        // If keys may be other objects than strings, each entry begins with a hash.
        let key_at = |place: u64| entries.wrapping_add(place * size + (size - 16));
        let is_it = |place: &u64| {
            let key = self.word(key_at(*place)).filter(|key| *key != 0);
            key.is_some_and(|key| self.string(key).is_some_and(|text| text == name))
        };
        let place = (0..count.min(MAX_ENTRIES)).find(is_it)?;
        let value = match values {
            Some(values) => self.word(values.wrapping_add(8 * place))?,
            None => self.word(key_at(place) + 8)?,
        };
        Some((self.word(key_at(place))?, value))
    }
}
