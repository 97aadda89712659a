//! A value that was given for a setting, and where.

use crate::terminal::errors::Failure;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use tprof_wire::env::PREFIX;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// On the command line.
    Flag,
    /// In the environment.
    Variable,
    /// In this file.
    File(PathBuf),
}

/// A value with its origin.
#[derive(Clone, Debug)]
pub struct GivenValue {
    /// Name of the setting.
    pub name: &'static str,
    /// What was given.
    pub text: OsString,
    /// Where.
    pub source: Source,
}

/// How the setting is spelt where it was given: `--mem`, `TPROF_MEM`, `mem` in a file.
impl fmt::Display for GivenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Flag => write!(f, "--{}", self.name),
            Source::Variable => f.write_str(&variable(self.name)),
            Source::File(path) => write!(f, "`{}` in {}", self.name, path.display()),
        }
    }
}

impl GivenValue {
    /// The text; values other than paths must be UTF-8.
    pub fn text(&self) -> Result<&str, Failure> {
        self.text.to_str().ok_or_else(|| self.refuse("the value is not UTF-8 text", ""))
    }

    /// The error for a value that cannot be meant. `right` is a value that
    /// could be; empty if there is none to suggest.
    pub fn refuse(&self, why: impl Into<String>, right: &str) -> Failure {
        let text = self.text.to_string_lossy();
        let failure = Failure::new(format!("bad value `{text}` for {self}")).cause(why);
        let name = self.name;
        failure.hint(match &self.source {
            _ if right.is_empty() => "tprof run --help".to_owned(),
            Source::Flag => format!("--{name}={right}"),
            Source::Variable => format!("{}={right}", variable(self.name)),
            Source::File(_) => format!("{name} = {}", toml::Value::from(right)),
        })
    }
}

/// The variable for a setting: `max-size` is `TPROF_MAX_SIZE`.
pub fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}
