//! Names runs on other hosts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Splits `HOST:RUN`. A text with a slash before its first colon is a path: `None`. A host that
/// begins with a dash is none either, because ssh would take it for an option.
pub fn host_and_run(run: &OsStr) -> Option<(String, OsString)> {
    let bytes = run.as_bytes();
    let at = bytes.iter().position(|byte| matches!(byte, b':' | b'/'))?;
    let host = std::str::from_utf8(&bytes[..at]).ok().filter(|host| !host.is_empty())?;
    let path = OsString::from_vec(bytes[at + 1..].to_vec());
    let is_run = bytes[at] == b':' && !path.is_empty() && !host.starts_with('-');
    is_run.then(|| (host.to_owned(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_comes_before_a_colon_without_a_slash() {
        let of = |text: &str| host_and_run(OsStr::new(text));
        let pair = |host: &str, run: &str| Some((host.to_owned(), OsString::from(run)));
        assert_eq!(of("gpu-1:runs/a"), pair("gpu-1", "runs/a"));
        assert_eq!(of("me@gpu-1:/r/a:b"), pair("me@gpu-1", "/r/a:b"));
        for none in ["./a:b", "runs/a", "a", ":a", "a:", "-oProxyCommand=x:a"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
