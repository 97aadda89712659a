//! Makes the structures (handles) that ITT returns to a program for names of domains and for texts.
//! Each text has one structure, which is never freed and which points at the same name that NVTX's
//! ranges use. Before a static part has loaded a tool, it makes such structures itself. They get
//! their name at their first use here.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{from_ref, null, null_mut};
use tprof_inject::registered_names::{self, Name, NameKind};
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicI32, AtomicPtr, Ordering::*};

/// ITT's `___itt_domain`, as programs read it.
#[repr(C)]
pub struct DomainHandle {
    /// Nonzero while calls with this domain reach tprof.
    is_on: AtomicI32,
    text: *const c_char,
    wide: *const c_void,
    reserved: c_int,
    /// The name, in the field that ITT leaves to tools.
    name: AtomicPtr<Name>,
    next: *mut DomainHandle,
}

/// ITT's `___itt_string_handle`, as programs read it.
#[repr(C)]
pub struct TextHandle {
    text: *const c_char,
    wide: *const c_void,
    reserved: c_int,
    /// The name, in the field that ITT leaves to tools.
    name: AtomicPtr<Name>,
    next: *mut TextHandle,
}

// SAFETY: once the structure is complete, only its atomic fields are written.
unsafe impl Sync for DomainHandle {}
// SAFETY: once the structure is complete, only its atomic fields are written.
unsafe impl Sync for TextHandle {}

/// Used in place of names for which there was no room.
const NOT_KEPT: &CStr = c"(name not kept)";
static DOMAIN_NOT_KEPT: DomainHandle = DomainHandle::new(NOT_KEPT.as_ptr(), null_mut());
static TEXT_NOT_KEPT: TextHandle = TextHandle::new(NOT_KEPT.as_ptr(), null_mut());

impl DomainHandle {
    const fn new(text: *const c_char, name: *mut Name) -> DomainHandle {
        let (is_on, name) = (AtomicI32::new(1), AtomicPtr::new(name));
        DomainHandle { is_on, text, wide: null(), reserved: 0, name, next: null_mut() }
    }
}

impl TextHandle {
    const fn new(text: *const c_char, name: *mut Name) -> TextHandle {
        TextHandle { text, wide: null(), reserved: 0, name: AtomicPtr::new(name), next: null_mut() }
    }
}

/// A table of structures, which finds a structure by the address of its name.
struct Places<T: 'static, const COUNT: usize>([AtomicPtr<T>; COUNT]);

/// Number of entries that are tried. If all are used, a structure is made that isn't in the table.
const PROBES: usize = 16;

static DOMAINS: Places<DomainHandle, { 1 << 10 }> =
    Places([const { AtomicPtr::new(null_mut()) }; 1 << 10]);
static TEXTS: Places<TextHandle, { 1 << 14 }> =
    Places([const { AtomicPtr::new(null_mut()) }; 1 << 14]);

impl<T, const COUNT: usize> Places<T, COUNT> {
    /// The structure of a name. Makes a new one if the name has none yet.
    fn of(
        &'static self,
        name: &'static Name,
        is_of: fn(&T, *const Name) -> bool,
        new: fn(*const c_char, *mut Name) -> T,
    ) -> Option<&'static T> {
        let first = (spread(from_ref(name) as u64) >> 40) as usize;
        let mut made: *mut T = null_mut();
        for probe in 0..PROBES {
            let place = self.0.get(first.wrapping_add(probe) % COUNT)?;
            let mut seen = place.load(Acquire);
            if seen.is_null() {
                if made.is_null() {
                    made = make(name, new)?;
                }
                match place.compare_exchange(null_mut(), made, AcqRel, Acquire) {
                    Ok(_) => seen = made,
                    Err(other) => seen = other,
                }
            }
            // SAFETY: every structure is complete before it is stored in the table, and is never
            // freed.
            let structure = unsafe { &*seen };
            if is_of(structure, name) {
                return Some(structure);
            }
        }
        if made.is_null() {
            made = make(name, new)?;
        }
        // SAFETY: `make` returned a complete structure, which is never freed.
        Some(unsafe { &*made })
    }
}

fn make<T>(name: &'static Name, new: fn(*const c_char, *mut Name) -> T) -> Option<*mut T> {
    const { assert!(align_of::<T>() <= 8) };
    let at = registered_names::reserve(size_of::<T>())?.cast::<T>();
    // SAFETY: `reserve` returned this many bytes, aligned to 8, for this caller only.
    unsafe { at.write(new(name.c_text(), from_ref(name).cast_mut())) };
    Some(at)
}

/// A domain's handle, the same each time for one name; null for a null name, as ITT does without a
/// tool.
///
/// # Safety
/// `text` is null or ends with a zero.
pub unsafe fn domain(text: *const c_char) -> *const DomainHandle {
    if text.is_null() {
        return null();
    }
    // SAFETY: the caller guarantees a zero at the end, and the text isn't null.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let name = registered_names::name(NameKind::Domain, text);
    let is_of =
        |domain: &DomainHandle, name: *const Name| domain.name.load(Relaxed).cast_const() == name;
    from_ref(
        name.and_then(|name| DOMAINS.of(name, is_of, DomainHandle::new))
            .unwrap_or(&DOMAIN_NOT_KEPT),
    )
}

/// A text's handle, the same each time for one text; null for a null text, as ITT does without a
/// tool.
///
/// # Safety
/// `text` is null or ends with a zero.
pub unsafe fn text(text: *const c_char) -> *const TextHandle {
    if text.is_null() {
        return null();
    }
    // SAFETY: the caller guarantees a zero at the end, and the text isn't null.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let name = registered_names::name(NameKind::Text, text);
    let is_of = |text: &TextHandle, name: *const Name| text.name.load(Relaxed).cast_const() == name;
    from_ref(name.and_then(|name| TEXTS.of(name, is_of, TextHandle::new)).unwrap_or(&TEXT_NOT_KEPT))
}

/// The name of a domain; `None` for a null handle, or if there is no room for names.
///
/// # Safety
/// `domain` is null or points at a domain structure that ITT or [`domain`] has made.
pub unsafe fn of_domain(domain: *const DomainHandle) -> Option<&'static Name> {
    // SAFETY: the caller guarantees null or a domain structure.
    let domain = unsafe { domain.as_ref() }?;
    // SAFETY: the `text` of a domain structure is null or ends with a zero.
    unsafe { known(&domain.name, NameKind::Domain, domain.text) }
}

/// The name of a text's handle; `None` for a null handle, or if there is no room for names.
///
/// # Safety
/// `text` is null or points at a text structure that ITT or [`text`] has made.
pub unsafe fn of_text(text: *const TextHandle) -> Option<&'static Name> {
    // SAFETY: the caller guarantees null or a text structure.
    let text = unsafe { text.as_ref() }?;
    // SAFETY: the `text` of a text structure is null or ends with a zero.
    unsafe { known(&text.name, NameKind::Text, text.text) }
}

/// # Safety
/// `text` is null or ends with a zero.
unsafe fn known(
    place: &AtomicPtr<Name>,
    kind: NameKind,
    text: *const c_char,
) -> Option<&'static Name> {
    if let Some(name) = registered_names::of_handle(place.load(Acquire)) {
        return Some(name);
    }
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees a zero at the end, and the text isn't null.
    let name = registered_names::name(kind, unsafe { CStr::from_ptr(text) }.to_bytes())?;
    place.store(from_ref(name).cast_mut(), Release);
    Some(name)
}

/// Switches on all domains that a static part has made. Older static parts make them switched off.
///
/// # Safety
/// `domain` is null or the first of a list of domain structures, and nothing changes the list
/// during the call.
pub unsafe fn enable(mut domain: *const DomainHandle) {
    // SAFETY: the caller guarantees that each pointer in the list is null or a domain structure.
    while let Some(this) = unsafe { domain.as_ref() } {
        this.is_on.store(1, Relaxed);
        domain = this.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_handle_as_a_domain_and_one_as_a_text() {
        assert!(registered_names::prepare());
        // SAFETY: string literals of C end with a zero.
        let (one, same, other) =
            unsafe { (domain(c"itt".as_ptr()), domain(c"itt".as_ptr()), domain(c"two".as_ptr())) };
        assert!(one == same && one != other);
        // SAFETY: string literals of C end with a zero.
        let (handle, again) = unsafe { (text(c"itt".as_ptr()), text(c"itt".as_ptr())) };
        assert_eq!(handle, again);
        // SAFETY: `domain` and `text` returned these handles.
        let (domain, text) = unsafe { (of_domain(one).unwrap(), of_text(handle).unwrap()) };
        assert_eq!((domain.text(), text.text()), (&b"itt"[..], &b"itt"[..]));
        assert!(domain.domain() > 0 && text.domain() == 0);
        // SAFETY: the handle's text is the name's, which ends with a zero.
        assert_eq!(unsafe { CStr::from_ptr((*one).text) }, c"itt");
    }

    #[test]
    fn a_domain_that_a_static_part_made_gets_a_name_and_is_switched_on() {
        assert!(registered_names::prepare());
        let made = DomainHandle::new(c"before the tool".as_ptr(), null_mut());
        made.is_on.store(0, Relaxed);
        // SAFETY: the list has one structure, whose `next` is null.
        unsafe { enable(&made) };
        assert_eq!(made.is_on.load(Relaxed), 1);
        // SAFETY: `made` is a domain structure, with a text that ends with a zero.
        let name = unsafe { of_domain(&made) }.unwrap();
        assert_eq!(name.text(), b"before the tool");
        // SAFETY: `made` is a domain structure, with a text that ends with a zero.
        assert!(std::ptr::eq(name, unsafe { of_domain(&made) }.unwrap()));
        // SAFETY: both functions accept null.
        assert!(unsafe { of_text(null()) }.is_none() && unsafe { text(null()) }.is_null());
    }
}
