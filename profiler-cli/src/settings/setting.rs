//! What a setting of a run consists of.

use super::given::GivenValue;
use super::resolved::Resolved;
use tprof_ui::errors::Failure;

/// A setting of a run.
#[derive(Debug)]
pub struct Setting {
    /// Name in the option and in the key.
    pub name: &'static str,
    /// Letter of the short option.
    pub short: Option<char>,
    /// Group in the help.
    pub group: Group,
    /// Help text. `{values}` in it is replaced by the list of values.
    pub help: &'static str,
    /// Kind of its value.
    pub kind: ValueKind,
    /// Parses a value, and stores it in the configuration.
    pub set: fn(&mut Resolved, &GivenValue) -> Result<(), Failure>,
    /// Formats the setting's value for `tprof.toml`; `None` if it is not set.
    pub show: fn(&Resolved) -> Option<toml::Value>,
}

/// Group of settings in the help.
#[derive(Debug, Clone, Copy)]
pub enum Group {
    /// What people need first.
    First,
    What,
    When,
    HowMuch,
    Where,
}

impl Group {
    /// Returns the heading in the help; `None` for the first group.
    pub fn heading(self) -> Option<&'static str> {
        match self {
            Group::First => None,
            Group::What => Some("What to record"),
            Group::When => Some("When to record"),
            Group::HowMuch => Some("How much to record"),
            Group::Where => Some("Where files go"),
        }
    }
}

/// Kind of a setting's value.
#[derive(Debug, Clone, Copy)]
pub enum ValueKind {
    /// True or false. The option without a value means true.
    Switch,
    /// Text that may be left out: its name in the help, and the value of the option without text.
    Optional(&'static str, &'static str),
    /// Path of a directory.
    Directory,
    /// Text: its name in the help, and the values that completions offer, if any.
    Text(&'static str, fn() -> Vec<&'static str>),
    /// A number: its name in the help. The parser accepts a negative number, so that tprof's own
    /// error about it names the value.
    Number(&'static str),
}

impl Setting {
    /// Returns the possible values, if these can be listed.
    pub fn values(&self) -> Vec<&'static str> {
        match self.kind {
            ValueKind::Text(_, values) => values(),
            _ => Vec::new(),
        }
    }
}
