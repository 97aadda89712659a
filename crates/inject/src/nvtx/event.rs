//! A program's description of a range or a mark, read as NVTX lays it out.

use super::names::{self, MESSAGE_MOST, Name};
use crate::block::Thread;
use crate::gpu::texts;
use core::ffi::{CStr, c_char, c_void};
use tprof_wire::gpu::Range;

/// `nvtxEventAttributes_t`, the same in versions 1 to 3.
#[repr(C)]
pub struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    colour_type: i32,
    colour: u32,
    value_type: i32,
    reserved: i32,
    value: u64,
    message_type: i32,
    message: *const c_void,
}
const _: () = assert!(size_of::<Attributes>() == 48);

const ARGB: i32 = 1;
/// Values of `nvtxMessageType_t`.
mod message {
    pub const BYTES: i32 = 1;
    pub const WIDE: i32 = 2;
    pub const REGISTERED: i32 = 3;
}

/// A text as a call passes it.
#[derive(Clone, Copy)]
pub enum Text {
    /// Bytes up to a NUL; null for none.
    Bytes(*const c_char),
    /// `wchar_t`s up to a zero; null for none.
    Wide(*const u32),
}

/// Reads a text and hands it on; the empty one for null.
///
/// # Safety
/// The pointer is null or a text that ends as in the variant.
pub unsafe fn with<R>(text: Text, then: impl FnOnce(&[u8]) -> R) -> R {
    match text {
        // SAFETY: the caller's premise.
        Text::Bytes(at) if !at.is_null() => then(unsafe { CStr::from_ptr(at) }.to_bytes()),
        Text::Wide(at) if !at.is_null() => {
            let mut bytes = [0u8; MESSAGE_MOST];
            // SAFETY: the caller's premise.
            let len = unsafe { narrow(at, &mut bytes) };
            then(bytes.get(..len).unwrap_or(&bytes))
        }
        _ => then(b""),
    }
}

/// `wchar_t`s as UTF-8, as far as there is room; how many bytes.
///
/// # Safety
/// `at` ends with a zero.
unsafe fn narrow(mut at: *const u32, bytes: &mut [u8]) -> usize {
    let mut len = 0;
    loop {
        // SAFETY: the caller's premise; nothing is read past the zero.
        let unit = unsafe { at.read() };
        if unit == 0 {
            return len;
        }
        let letter = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut encoded = [0u8; 4];
        let encoded = letter.encode_utf8(&mut encoded).as_bytes();
        let Some(room) = bytes.get_mut(len..len + encoded.len()) else { return len };
        for (to, from) in room.iter_mut().zip(encoded) {
            *to = *from;
        }
        len += encoded.len();
        // SAFETY: not past the zero.
        at = unsafe { at.add(1) };
    }
}

/// The number of a text on the wire.
///
/// # Safety
/// The same premises as [`with`].
pub unsafe fn text_id(thread: &Thread, text: Text) -> u32 {
    // SAFETY: the caller's premise.
    unsafe { with(text, |text| texts::id(thread, text)) }
}

/// A range with this text, in a domain.
///
/// # Safety
/// The same premises as [`with`].
pub unsafe fn named(thread: &Thread, text: Text) -> Range {
    // SAFETY: the caller's premise.
    Range { name: unsafe { text_id(thread, text) }, ..Range::default() }
}

/// A range with these attributes, in a domain. What is not there is left out.
///
/// # Safety
/// `at` is null or a structure of NVTX's of the size that it gives.
pub unsafe fn described(
    thread: &Thread,
    domain: Option<&'static Name>,
    at: *const Attributes,
) -> Range {
    let mut range =
        Range { domain: domain.map_or(0, |domain| domain.id(thread)), ..Range::default() };
    // SAFETY: the caller's premise; every version has had all of the fields.
    let Some(given) = (unsafe { at.as_ref() }) else { return range };
    if usize::from(given.bytes) < size_of::<Attributes>() {
        return range;
    }
    range.category = given.category;
    if given.category != 0
        && let Some(name) = names::of_category(domain, given.category)
    {
        range.category_name = name.id(thread);
    }
    if given.colour_type == ARGB {
        range.colour = given.colour;
    }
    if given.value_type > 0 {
        range.value_type = given.value_type as u32;
        range.value = given.value;
    }
    range.name = match given.message_type {
        // SAFETY: the type decides what the pointer is.
        message::BYTES => unsafe { text_id(thread, Text::Bytes(given.message.cast())) },
        // SAFETY: the type decides what the pointer is.
        message::WIDE => unsafe { text_id(thread, Text::Wide(given.message.cast())) },
        message::REGISTERED => {
            names::of_handle(given.message.cast()).map_or(0, |name| name.id(thread))
        }
        _ => 0,
    };
    range
}

/// Hands on the text of attributes; not called where there is none.
///
/// # Safety
/// The same premises as [`described`].
pub unsafe fn with_message(at: *const Attributes, then: &mut dyn FnMut(&[u8])) {
    // SAFETY: the caller's premise; every version has had all of the fields.
    let Some(given) = (unsafe { at.as_ref() }) else { return };
    if usize::from(given.bytes) < size_of::<Attributes>() {
        return;
    }
    match given.message_type {
        // SAFETY: the type decides what the pointer is.
        message::BYTES => unsafe { with(Text::Bytes(given.message.cast()), then) },
        // SAFETY: the type decides what the pointer is.
        message::WIDE => unsafe { with(Text::Wide(given.message.cast()), then) },
        message::REGISTERED => {
            if let Some(name) = names::of_handle(given.message.cast()) {
                then(name.text());
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_texts_become_utf8() {
        let wide: Vec<u32> = "Schritt Ä→𝄞".chars().map(u32::from).chain([0]).collect();
        // SAFETY: ends with a zero.
        let text = unsafe { with(Text::Wide(wide.as_ptr()), <[u8]>::to_vec) };
        assert_eq!(text, "Schritt Ä→𝄞".as_bytes());
        // SAFETY: null is no text.
        assert!(unsafe { with(Text::Wide(std::ptr::null()), <[u8]>::is_empty) });
    }

    #[test]
    fn long_wide_texts_are_cut_between_letters() {
        let wide: Vec<u32> = std::iter::repeat_n(u32::from('→'), 5_000).chain([0]).collect();
        // SAFETY: ends with a zero.
        let text = unsafe { with(Text::Wide(wide.as_ptr()), <[u8]>::to_vec) };
        assert!(text.len() <= MESSAGE_MOST && text.len() > MESSAGE_MOST - 3);
        assert!(std::str::from_utf8(&text).is_ok());
    }
}
