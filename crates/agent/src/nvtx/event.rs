//! Reads a program's description of a range or a mark from NVTX's structures.

use crate::gpu::texts;
use core::ffi::{CStr, c_char, c_void};
use tprof_inject::block::Thread;
use tprof_inject::registered_names::{self, MESSAGE_MOST, Name};
use tprof_wire::gpu::Range;

/// `nvtxEventAttributes_t`, which has the same layout in versions 1 to 3.
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

/// A text in the form in which a call passes it.
#[derive(Clone, Copy)]
pub enum Text {
    /// Bytes that end with a NUL; null for no text.
    Bytes(*const c_char),
    /// `wchar_t`s that end with a zero; null for no text.
    Wide(*const u32),
}

/// Reads a text and passes it to `then`; passes an empty text for null.
///
/// # Safety
/// The pointer is null or points at a text that ends as the variant's comment says.
pub unsafe fn with<R>(text: Text, then: impl FnOnce(&[u8]) -> R) -> R {
    match text {
        // SAFETY: the caller guarantees a NUL at the end, and the pointer isn't null.
        Text::Bytes(at) if !at.is_null() => then(unsafe { CStr::from_ptr(at) }.to_bytes()),
        Text::Wide(at) if !at.is_null() => {
            let mut bytes = [0u8; MESSAGE_MOST];
            // SAFETY: the caller guarantees a zero at the end, and the pointer isn't null.
            let len = unsafe { narrow(at, &mut bytes) };
            then(bytes.get(..len).unwrap_or(&bytes))
        }
        _ => then(b""),
    }
}

/// Converts `wchar_t`s to UTF-8, up to the last letter that fits. Returns the number of bytes.
///
/// # Safety
/// `at` points at `wchar_t`s that end with a zero.
unsafe fn narrow(mut at: *const u32, bytes: &mut [u8]) -> usize {
    let mut len = 0;
    loop {
        // SAFETY: the caller guarantees a zero at the end, and the loop has not read beyond it.
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
        // SAFETY: this unit was not the zero at the end, so another one follows.
        at = unsafe { at.add(1) };
    }
}

/// The id by which records refer to a text.
///
/// # Safety
/// The same premises as [`with`].
pub unsafe fn text_id(thread: &Thread, text: Text) -> u32 {
    // SAFETY: the caller guarantees the premises of `with`.
    unsafe { with(text, |text| texts::id(thread, text)) }
}

/// Describes a range that has only a text and is in no domain.
///
/// # Safety
/// The same premises as [`with`].
pub unsafe fn named(thread: &Thread, text: Text) -> Range {
    // SAFETY: the caller guarantees the premises of `with`.
    Range { name: unsafe { text_id(thread, text) }, ..Range::default() }
}

/// Describes a range in a domain by its attributes. Attributes that are not set stay 0.
///
/// # Safety
/// `at` is null or points at a structure of NVTX's, which has the size in its own size field.
pub unsafe fn described(
    thread: &Thread,
    domain: Option<&'static Name>,
    at: *const Attributes,
) -> Range {
    let mut range =
        Range { domain: domain.map_or(0, |domain| domain.id(thread)), ..Range::default() };
    // SAFETY: the caller guarantees null or a structure, and every version has all of these fields.
    let Some(given) = (unsafe { at.as_ref() }) else { return range };
    if usize::from(given.bytes) < size_of::<Attributes>() {
        return range;
    }
    range.category = given.category;
    if given.category != 0
        && let Some(name) = registered_names::of_category(domain, given.category)
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
        // SAFETY: by the message's type, it is a text that ends with a NUL.
        message::BYTES => unsafe { text_id(thread, Text::Bytes(given.message.cast())) },
        // SAFETY: by the message's type, it consists of `wchar_t`s that end with a zero.
        message::WIDE => unsafe { text_id(thread, Text::Wide(given.message.cast())) },
        message::REGISTERED => {
            registered_names::of_handle(given.message.cast()).map_or(0, |name| name.id(thread))
        }
        _ => 0,
    };
    range
}

/// Passes the text in attributes to `then`. Doesn't call `then` if there is no text.
///
/// # Safety
/// The same premises as [`described`].
pub unsafe fn with_message(at: *const Attributes, then: &mut dyn FnMut(&[u8])) {
    // SAFETY: the caller guarantees null or a structure, and every version has all of these fields.
    let Some(given) = (unsafe { at.as_ref() }) else { return };
    if usize::from(given.bytes) < size_of::<Attributes>() {
        return;
    }
    match given.message_type {
        // SAFETY: by the message's type, it is a text that ends with a NUL.
        message::BYTES => unsafe { with(Text::Bytes(given.message.cast()), then) },
        // SAFETY: by the message's type, it consists of `wchar_t`s that end with a zero.
        message::WIDE => unsafe { with(Text::Wide(given.message.cast()), then) },
        message::REGISTERED => {
            if let Some(name) = registered_names::of_handle(given.message.cast()) {
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
        // SAFETY: `wide` ends with a zero.
        let text = unsafe { with(Text::Wide(wide.as_ptr()), <[u8]>::to_vec) };
        assert_eq!(text, "Schritt Ä→𝄞".as_bytes());
        // SAFETY: null is allowed.
        assert!(unsafe { with(Text::Wide(std::ptr::null()), <[u8]>::is_empty) });
    }

    #[test]
    fn long_wide_texts_are_cut_between_letters() {
        let wide: Vec<u32> = std::iter::repeat_n(u32::from('→'), 5_000).chain([0]).collect();
        // SAFETY: `wide` ends with a zero.
        let text = unsafe { with(Text::Wide(wide.as_ptr()), <[u8]>::to_vec) };
        assert!(text.len() <= MESSAGE_MOST && text.len() > MESSAGE_MOST - 3);
        assert!(std::str::from_utf8(&text).is_ok());
    }
}
