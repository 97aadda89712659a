//! Where an option's value comes from: a flag, a `TPROF_*` variable, a key of
//! `tprof.toml`.
//!
//! All three spell the same list of names and give text, so that a value means
//! the same everywhere. Whatever cannot be understood is refused here, by name:
//! a mistyped variable that is silently ignored costs a night of a cluster.

use crate::cli::RunOptions;
use crate::launch::enabled::ENABLED;
use crate::terminal::errors::{Failure, nearest, said};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use tprof_wire::env as names;

/// Every option of a run, as its flag and its key in `tprof.toml` spell it.
pub const SETTINGS: [&str; 18] = [
    "output",
    "force",
    "activities",
    "mem",
    "stacks",
    "sample-rate",
    "counters",
    "rss-interval",
    "gpu-interval",
    "max-size",
    "duration",
    "delay",
    "paused",
    "follow",
    "on-full",
    "export",
    "redact",
    "quiet",
];

/// Path of the configuration file, if not `./tprof.toml`.
pub const CONFIG_FILE: &str = "TPROF_CONFIG";
/// Directory that holds the injected libraries.
pub const LIBRARY_DIR: &str = "TPROF_LIB_DIR";

/// Variables that mean something to another part of tprof.
const OTHER_VARIABLES: [&str; 10] = [
    names::SESSION,
    names::BIN,
    names::HOST,
    names::OPTIONS,
    names::CUPTI,
    names::CUPTI_RECORD,
    names::NEXT_INJECTION,
    CONFIG_FILE,
    LIBRARY_DIR,
    ENABLED,
];
/// Prefixes left to the test suite and the benchmark.
const OTHER_PREFIXES: [&str; 2] = ["TPROF_TEST_", "TPROF_BENCH_"];

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
pub struct Given {
    /// Which setting; one of [`SETTINGS`].
    pub name: &'static str,
    /// What was given.
    pub text: OsString,
    /// Where.
    pub source: Source,
}

/// How the setting is spelt where it was given: `--mem`, `TPROF_MEM`, `mem` in a file.
impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Flag => write!(f, "--{}", self.name),
            Source::Variable => f.write_str(&variable(self.name)),
            Source::File(path) => write!(f, "`{}` in {}", self.name, path.display()),
        }
    }
}

impl Given {
    /// The text; values other than paths must be UTF-8.
    pub fn text(&self) -> Result<&str, Failure> {
        self.text.to_str().ok_or_else(|| self.refuse("it is not UTF-8 text", ""))
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
            Source::Variable => format!("{}={right}", variable(name)),
            Source::File(_) => format!("{name} = {}", toml::Value::from(right)),
        })
    }
}

/// The variable for a setting: `max-size` is `TPROF_MAX_SIZE`.
pub fn variable(name: &str) -> String {
    format!("{}{}", names::PREFIX, name.to_uppercase().replace('-', "_"))
}

/// What was typed.
pub fn from_flags(options: RunOptions) -> Vec<Given> {
    let RunOptions {
        output,
        force,
        activities,
        mem,
        stacks,
        sample_rate,
        counters,
        rss_interval,
        gpu_interval,
        max_size,
        duration,
        delay,
        paused,
        follow,
        on_full,
        export,
        redact,
        quiet,
    } = options;
    let typed = [
        output,
        force,
        activities,
        mem,
        stacks,
        sample_rate,
        counters,
        rss_interval,
        gpu_interval,
        max_size,
        duration,
        delay,
        paused,
        follow,
        on_full,
        export,
        redact,
        quiet,
    ];
    let given = |(name, text)| Some(Given { name, text: text?, source: Source::Flag });
    SETTINGS.into_iter().zip(typed).filter_map(given).collect()
}

/// What the environment says. Inside a recorded job `TPROF_OUTPUT` is that
/// recording's, not a wish for this one.
pub fn from_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Given>, Failure> {
    let variables: BTreeMap<_, _> = variables.into_iter().collect();
    let nested = variables.contains_key(OsStr::new(names::SESSION));
    let mut given = Vec::new();
    for (key, text) in &variables {
        let Some(key) = key.to_str().filter(|key| key.starts_with(names::PREFIX)) else {
            continue;
        };
        let known = SETTINGS.into_iter().find(|name| variable(name) == key);
        let other = OTHER_VARIABLES.contains(&key)
            || OTHER_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        match known {
            Some("output") if nested => {}
            Some(name) => given.push(Given { name, text: text.clone(), source: Source::Variable }),
            None if other => {}
            None => return Err(unknown_variable(key)),
        }
    }
    Ok(given)
}

fn unknown_variable(key: &str) -> Failure {
    let mut known = SETTINGS.map(variable).to_vec();
    known.extend([CONFIG_FILE, LIBRARY_DIR, ENABLED, names::CUPTI].map(str::to_owned));
    Failure::new(format!("unknown variable {key}"))
        .cause("variables that begin with TPROF_ configure tprof, and it does not know this one")
        .hint(match nearest(key, known.iter().map(String::as_str)) {
            Some(right) => format!("{right}, or `unset {key}`"),
            None => format!("`unset {key}`; `tprof run --help` lists the options"),
        })
}

/// Reads the configuration file: `named` (which must exist), or `tprof.toml`
/// in `directory` if there is one.
pub fn from_file(named: Option<&OsStr>, directory: &Path) -> Result<Vec<Given>, Failure> {
    let path = match named {
        Some(named) => directory.join(named),
        None => directory.join("tprof.toml"),
    };
    let cannot_read = |why: String| {
        Failure::new(format!("cannot read `{}`", path.display()))
            .cause(why)
            .hint(format!("correct the file, or point {CONFIG_FILE} at another"))
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => from_toml(&text, &path, cannot_read),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(cannot_read(said(&e))),
    }
}

fn from_toml(
    text: &str,
    path: &Path,
    cannot_read: impl Fn(String) -> Failure,
) -> Result<Vec<Given>, Failure> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        cannot_read(format!("{place}{}", e.message().replace('\n', " ")))
    })?;
    let mut given = Vec::new();
    for (key, value) in &table {
        let Some(name) = SETTINGS.into_iter().find(|name| name == key) else {
            return Err(Failure::new(format!("unknown key `{key}` in {}", path.display()))
                .cause(format!("the keys are {}", SETTINGS.join(", ")))
                .hint(match nearest(&key.replace('_', "-"), SETTINGS) {
                    Some(right) => format!("{right} = {value}"),
                    None => "remove the line".to_owned(),
                }));
        };
        let source = Source::File(path.to_owned());
        let Some(text) = toml_text(value) else {
            let text = value.to_string().into();
            let kind = value.type_str();
            return Err(Given { name, text, source }
                .refuse(format!("a value of type {kind} means nothing here"), ""));
        };
        given.push(Given { name, text: text.into(), source });
    }
    Ok(given)
}

/// The text that a flag would have for this value.
fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(|item| item.as_str()).collect();
            Some(items?.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}
