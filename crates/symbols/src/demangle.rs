//! Demangles the names of C++ and Rust functions.
//!
//! C++ names keep their parameters (`ns::Class::method(int)`), which distinguish overloads, but
//! lose their return type. Rust names lose their hash. C names stay unchanged. The suffixes that
//! optimizers append (`.isra.0`, `.cold`) are removed from all names, so that the parts of a
//! function count as one function.
//!
//! Names come from the job's files, and a short mangled name can expand to an endless one.
//! Therefore output is limited to [`MAX_NAME`] bytes.

use std::fmt::{self, Write};

/// Length at which names are cut, bytes.
pub(crate) const MAX_NAME: usize = 4096;

/// Demangles a name. A name that isn't mangled is returned unchanged.
pub fn demangle(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    let name = without_suffix(name);
    if name.starts_with("_R") || is_legacy_rust(name) {
        if let Ok(demangled) = rustc_demangle::try_demangle(name) {
            return bounded(|out| write!(out, "{demangled:#}"));
        }
    } else if name.starts_with("_Z") && name.len() <= MAX_NAME {
        let options = cpp_demangle::DemangleOptions::new().no_return_type();
        if let Ok(symbol) = cpp_demangle::Symbol::new(name) {
            let demangled = bounded(|out| symbol.structured_demangle(out, &options));
            if !demangled.is_empty() {
                return demangled;
            }
        }
    }
    bounded(|out| out.write_str(name))
}

/// Whether a name is mangled, so that it includes namespace and parameters.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// Whether a `_ZN…E` name ends in the hash of Rust's older mangling.
fn is_legacy_rust(name: &str) -> bool {
    let hash =
        name.strip_suffix('E').and_then(|n| n.len().checked_sub(19).and_then(|i| n.get(i..)));
    name.starts_with("_ZN")
        && hash
            .and_then(|h| h.strip_prefix("17h"))
            .is_some_and(|h| h.len() == 16 && h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Removes the suffixes that GCC and LLVM append to the names of a function's copies and parts.
fn without_suffix(name: &str) -> &str {
    const SUFFIXES: [&str; 7] =
        [".isra.", ".part.", ".constprop.", ".lto_priv.", ".llvm.", ".cold", ".localalias"];
    let cut = SUFFIXES.iter().filter_map(|s| name.find(s)).min();
    match cut {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// Returns what a writer writes, cut at [`MAX_NAME`] bytes.
fn bounded(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> String {
    let mut out = Bounded(String::new());
    // An error means that the name was cut. A cut name is better than no name.
    let _ = write(&mut out);
    out.0
}

/// Returns the first `limit` bytes of a text, or fewer, so that it ends between two characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|i| text.is_char_boundary(*i));
    &text[..end.unwrap_or(0)]
}

/// A string that refuses to grow past [`MAX_NAME`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_NAME - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(cut(text, room));
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_c_cpp_and_rust_are_demangled() {
        for (mangled, shown) in [
            ("malloc", "malloc"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_ZN2ns5Class6methodEi", "ns::Class::method(int)"),
            ("_Z3addIiET_S0_S0_", "add<int>(int, int)"),
            ("_ZN2at6native3addERKNS_6TensorE", "at::native::add(at::Tensor const&)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
            ("fold_rtx.isra.0", "fold_rtx"),
            ("_ZN2ns5Class6methodEi.cold", "ns::Class::method(int)"),
            ("_Znonsense", "_Znonsense"),
            (".cold", ".cold"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), shown);
        }
    }

    #[test]
    fn a_name_that_expands_without_end_is_cut() {
        // Each pair refers to the previous one twice, so the name doubles with each pair.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for i in 0..30u32 {
            let last = if i == 0 { "S_".into() } else { format!("S{}_", to_base_36(i - 1)) };
            name += &format!("St4pairI{last}{last}E");
        }
        assert!(demangle(&name).len() <= MAX_NAME);
        assert!(demangle(&"x".repeat(10_000)).len() <= MAX_NAME);
    }

    fn to_base_36(n: u32) -> String {
        std::char::from_digit(n, 36).unwrap().to_uppercase().to_string()
    }
}
