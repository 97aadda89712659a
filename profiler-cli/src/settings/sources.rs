//! The sources of settings: options, `TPROF_*` variables and keys of `tprof.toml`.
//!
//! All three have the same names and text values, so that a value means the same everywhere.
//! Unknown names and values are refused with an error. If tprof silently ignored a mistyped
//! variable, a job could run all night on a cluster with the wrong settings.

use super::enabled::ENABLED;
use super::given::{GivenValue, Source, variable};
use super::options::RunOptions;
use super::setting::Setting;
use super::table::{OUTPUT, SETTINGS, find};
use super::values;
use crate::launch::libraries::LIBRARY_DIR;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use tprof_ui::errors::{Failure, nearest, reason};
use tprof_wire::env as names;

/// Variable with the path of the configuration file, if it isn't `./tprof.toml`.
pub const CONFIG_FILE: &str = "TPROF_CONFIG";

/// Variables that other parts of tprof use. They are not settings.
const OTHER_VARIABLES: [&str; 15] = [
    names::SESSION,
    names::BIN,
    names::HOST,
    names::OPTIONS,
    names::CUPTI,
    names::CUPTI_RECORD,
    names::CUPTI_SUBSCRIBE,
    names::NEXT_INJECTION,
    names::NCCL_EVENTS,
    names::GRAPH_NODES,
    names::PC_SAMPLING,
    names::CALLS_BY_HOOKS,
    CONFIG_FILE,
    LIBRARY_DIR,
    ENABLED,
];
/// Prefixes of variables that the test suite and the benchmark use.
const OTHER_PREFIXES: [&str; 2] = ["TPROF_TEST_", "TPROF_BENCH_"];

/// The values from one source.
pub type SettingsLayer = Vec<(&'static Setting, GivenValue)>;

/// Returns the values from the command line.
pub fn from_flags(options: RunOptions) -> SettingsLayer {
    options.given().map(|(setting, text)| given(setting, text, Source::Flag)).collect()
}

/// Parses the value of a switch on the command line.
pub fn flag_of(switch: &'static Setting, text: &OsStr) -> Result<bool, Failure> {
    values::flag(&given(switch, text.to_owned(), Source::Flag).1)
}

fn given(
    setting: &'static Setting,
    text: OsString,
    source: Source,
) -> (&'static Setting, GivenValue) {
    (setting, GivenValue { name: setting.name, text, source })
}

/// Returns the values from the environment. Within a recorded job, `TPROF_OUTPUT` is the output of
/// that recording and is ignored.
pub fn from_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<SettingsLayer, Failure> {
    let variables: BTreeMap<_, _> = variables.into_iter().collect();
    let nested = variables.contains_key(OsStr::new(names::SESSION));
    let mut layer = Vec::new();
    for (key, text) in &variables {
        let Some(key) = key.to_str().filter(|key| key.starts_with(names::PREFIX)) else {
            continue;
        };
        let known = SETTINGS.into_iter().find(|setting| variable(setting.name) == key);
        let other = OTHER_VARIABLES.contains(&key)
            || OTHER_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        match known {
            Some(setting) if nested && std::ptr::eq(setting, &OUTPUT) => {}
            Some(setting) => layer.push(given(setting, text.clone(), Source::Variable)),
            None if other => {}
            None => return Err(unknown_variable(key)),
        }
    }
    Ok(layer)
}

fn unknown_variable(key: &str) -> Failure {
    let mut known = SETTINGS.map(|setting| variable(setting.name)).to_vec();
    known.extend([CONFIG_FILE, LIBRARY_DIR, ENABLED, names::CUPTI].map(str::to_owned));
    Failure::new(format!("unknown variable {key}")).cause("tprof has no setting of this name").hint(
        match nearest(key, known.iter().map(String::as_str)) {
            Some(right) => format!("{right}, or `unset {key}`"),
            None => format!("`unset {key}`; `tprof run --help` lists the options"),
        },
    )
}

/// Returns the values from the configuration file. If `named` is given, that file must exist;
/// otherwise the file is `tprof.toml` in `directory`, if there is one.
pub fn from_file(named: Option<&OsStr>, directory: &Path) -> Result<SettingsLayer, Failure> {
    let path = match named {
        Some(named) => directory.join(named),
        None => directory.join("tprof.toml"),
    };
    let cannot_read = |why: String| {
        Failure::new(format!("cannot read `{}`", path.display()))
            .cause(why)
            .hint(format!("correct the file, or set {CONFIG_FILE} to another file"))
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => from_toml(&text, &path, cannot_read),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(cannot_read(reason(&e))),
    }
}

fn from_toml(
    text: &str,
    path: &Path,
    cannot_read: impl Fn(String) -> Failure,
) -> Result<SettingsLayer, Failure> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        cannot_read(format!("{place}{}", e.message().replace('\n', " ")))
    })?;
    let mut layer = Vec::new();
    for (key, value) in &table {
        let Some(setting) = find(key) else {
            let names = SETTINGS.map(|setting| setting.name);
            return Err(Failure::new(format!("unknown key `{key}` in {}", path.display()))
                .cause(format!("the keys are {}", names.join(", ")))
                .hint(match nearest(&key.replace('_', "-"), names) {
                    Some(right) => format!("{right} = {value}"),
                    None => "remove the line".to_owned(),
                }));
        };
        let source = Source::File(path.to_owned());
        let Some(text) = toml_text(value) else {
            let text = value.to_string().into();
            let kind = value.type_str();
            return Err(GivenValue { name: setting.name, text, source }
                .refuse(format!("a value of type {kind} is not allowed"), ""));
        };
        layer.push(given(setting, text.into(), source));
    }
    Ok(layer)
}

/// Returns the text that an option would have for this TOML value; `None` for a type that no option
/// has.
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
