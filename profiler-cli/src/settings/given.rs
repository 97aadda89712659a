//! A value that was given for a setting, and its source.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use tprof_ui::errors::Failure;
use tprof_wire::env::PREFIX;

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// An environment variable.
    Variable,
    /// The configuration file at this path.
    File(PathBuf),
}

/// A value with its source.
#[derive(Clone, Debug)]
pub struct GivenValue {
    /// Name of the setting.
    pub name: &'static str,
    /// Text of the value.
    pub text: OsString,
    /// Source of the value.
    pub source: Source,
}

/// Formats the setting's name as its source spells it: `--mem`, `TPROF_MEM`, `mem` in a file.
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
    /// Returns the value as UTF-8 text. Only paths may be other text.
    pub fn text(&self) -> Result<&str, Failure> {
        self.text.to_str().ok_or_else(|| self.refuse("the value is not UTF-8 text", ""))
    }

    /// Returns the error for an invalid value. `right` is an example of a valid value; it is empty
    /// if there is none to suggest.
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

/// Returns the name of the variable for a setting: `TPROF_MAX_SIZE` for `max-size`.
pub fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}
