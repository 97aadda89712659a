//! Translates the paths of files to names on the server: they are the same, unless `--remote-data
//! FROM=TO` sets another prefix.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tprof_ui::errors::Failure;

use crate::status::MISUSE;

/// Characters that a server takes for a pattern in a path.
const PATTERNS: [char; 6] = ['*', '?', '[', ']', '{', '}'];

/// Prefixes of paths and addresses that differ on the server.
#[derive(Debug, Default)]
pub struct Names(Vec<Beginning>);

#[derive(Debug)]
struct Beginning {
    from: String,
    to: String,
    is_used: AtomicBool,
}

impl Names {
    /// Parses the options.
    pub fn parse(options: &[OsString]) -> Result<Names, Failure> {
        options.iter().map(|option| beginning(option)).collect::<Result<_, _>>().map(Names)
    }

    /// Returns the server's name for an absolute path or the address of an object.
    pub fn on_server(&self, address: &str) -> Result<String, Failure> {
        let longest = self.0.iter().filter(|one| one.rest(address).is_some());
        let name = match longest.max_by_key(|one| one.from.len()) {
            Some(one) => {
                one.is_used.store(true, Ordering::Relaxed);
                one.joined(one.rest(address).unwrap_or_default())
            }
            // With the scheme, a path refers to local files. Without it, a path would refer to the
            // server's default file system, HDFS for example.
            None if address.starts_with('/') => format!("file://{address}"),
            None => address.to_owned(),
        };
        match name.find(PATTERNS) {
            Some(at) => Err(Failure::new(format!("a server cannot open the path `{name}`"))
                .cause(format!("there `{}` is part of a pattern", &name[at..=at]))
                .hint("a path without * ? [ ] { }")
                .code(MISUSE)),
            None => Ok(name),
        }
    }

    /// Fails if a `--remote-data` option has not changed any name, because it is probably mistyped.
    pub fn check_used(&self) -> Result<(), Failure> {
        match self.0.iter().find(|one| !one.is_used.load(Ordering::Relaxed)) {
            Some(one) => Err(Failure::new(format!("--remote-data {}=… changes nothing", one.from))
                .cause("no file of the runs has a path that begins with it")
                .hint("FROM is the beginning of an absolute path or of an address such as s3://")
                .code(MISUSE)),
            None => Ok(()),
        }
    }
}

fn beginning(option: &OsStr) -> Result<Beginning, Failure> {
    let parts = option.to_str().and_then(|text| text.split_once('='));
    let Some((from, to)) = parts.filter(|(from, to)| !from.is_empty() && !to.is_empty()) else {
        return Err(Failure::new(format!("bad value `{}` for --remote-data", option.display()))
            .cause("the value is not FROM=TO")
            .hint("--remote-data s3://=s3a://, --remote-data /mnt/jobs=hdfs://host/jobs")
            .code(MISUSE));
    };
    let absolute = match from.contains("://") {
        true => None,
        false => {
            Path::new(from).canonicalize().ok().and_then(|path| path.to_str().map(str::to_owned))
        }
    };
    let from = absolute.unwrap_or_else(|| from.to_owned());
    Ok(Beginning { from, to: to.to_owned(), is_used: AtomicBool::new(false) })
}

impl Beginning {
    /// Returns the rest of an address that begins with the prefix.
    fn rest<'a>(&self, address: &'a str) -> Option<&'a str> {
        let rest = address.strip_prefix(&self.from)?;
        let is_whole = self.from.ends_with('/') || rest.is_empty() || rest.starts_with('/');
        is_whole.then_some(rest)
    }

    fn joined(&self, rest: &str) -> String {
        if self.to.ends_with("://") {
            return format!("{}{}", self.to, rest.trim_start_matches('/'));
        }
        match rest.trim_start_matches('/') {
            "" => self.to.clone(),
            rest => format!("{}/{rest}", self.to.trim_end_matches('/')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_server(option: &str, address: &str) -> String {
        let names = Names::parse(&[option.into()]).unwrap();
        names.on_server(address).unwrap()
    }

    #[test]
    fn a_prefix_ends_at_a_separator() {
        assert_eq!(on_server("s3://=s3a://", "s3://jobs/a"), "s3a://jobs/a");
        assert_eq!(
            on_server("az://jobs=abfss://jobs@account.dfs.core.windows.net", "az://jobs/a/b"),
            "abfss://jobs@account.dfs.core.windows.net/a/b"
        );
        assert_eq!(on_server("s3://jobs=/Volumes/jobs/", "s3://jobs/a"), "/Volumes/jobs/a");
        assert_eq!(on_server("/none/a=/b", "/none/a/c"), "/b/c");
        assert_eq!(on_server("/none/a=/b", "/none/ab/c"), "file:///none/ab/c");
        assert_eq!(on_server("/none/a/=hdfs://h", "/none/a/c"), "hdfs://h/c");
    }

    #[test]
    fn an_unused_prefix_is_an_error() {
        let names = Names::parse(&["/none=/b".into()]).unwrap();
        assert_eq!(names.on_server("s3://a/b").unwrap(), "s3://a/b");
        assert!(names.check_used().is_err());
        assert!(names.on_server("/a*/b").is_err());
        assert!(Names::parse(&["/none".into()]).is_err());
    }
}
