//! Quotes text for shells, so that users can type what tprof prints.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Returns `text` in single quotes. Any POSIX shell reads it back byte for byte.
pub fn quoted(text: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for byte in text.as_bytes() {
        match byte {
            b'\'' => bytes.extend(b"'\\''"),
            byte => bytes.push(*byte),
        }
    }
    bytes.push(b'\'');
    OsString::from_vec(bytes)
}

/// Returns `text` as one word of a command line. It is quoted only if necessary.
pub fn word(text: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    if !text.is_empty() && text.as_bytes().iter().all(plain) {
        return text.to_string_lossy().into_owned();
    }
    quoted(text).to_string_lossy().into_owned()
}

/// Returns how the user calls this program: by its path, if the path was given and no directory of
/// `PATH` has a `tprof`.
pub fn program() -> String {
    let given = std::env::args_os().next().filter(|given| {
        let given = Path::new(given);
        given.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
            && given.file_name().is_some_and(|name| name == "tprof")
    });
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_found = || std::env::split_paths(&folders).any(|folder| folder.join("tprof").is_file());
    given.filter(|_| !is_found()).map_or_else(|| "tprof".to_owned(), |given| word(&given))
}

/// Shortens a path to what a user would type in the current directory: a relative path if it is
/// below that directory.
pub fn nearby(path: &Path) -> &Path {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok());
    below.filter(|below| !below.as_os_str().is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_reads_back_in_a_shell() {
        let awkward = b"a 'b' \"c\" $HOME `id` \\ \n\xff! *".to_vec();
        let awkward = OsString::from_vec(awkward);
        let mut script = OsString::from("printf %s ");
        script.push(quoted(&awkward));
        let output = std::process::Command::new("/bin/sh").arg("-c").arg(script).output();
        assert_eq!(output.expect("sh").stdout, awkward.as_bytes());
    }

    #[test]
    fn plain_words_stay_plain() {
        assert_eq!(word(OsStr::new("tprof-true-2025")), "tprof-true-2025");
        assert_eq!(word(OsStr::new("my run")), "'my run'");
        assert_eq!(word(OsStr::new("")), "''");
    }
}
