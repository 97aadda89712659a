//! Builds the options of a command from the table of settings.

use super::setting::{Setting, ValueKind};
use super::table::SETTINGS;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use std::ffi::OsString;

/// Name that help shows for a switch's optional value (`--redact=false`). Only switches that a
/// variable or a file can set have one.
pub const BOOL: &str = "BOOL";

/// Options that `run` and `env` share. The values are text; [`super::resolve()`] parses them.
#[derive(Debug, Default, Clone)]
pub struct RunOptions(Vec<(&'static Setting, OsString)>);

impl RunOptions {
    /// Creates the options. Settings with `None` were not given.
    pub fn new<const N: usize>(given: [(&'static Setting, Option<OsString>); N]) -> Self {
        Self(given.into_iter().filter_map(|(setting, text)| Some((setting, text?))).collect())
    }

    /// Returns the settings that were given, with the text of their values.
    pub fn given(self) -> impl Iterator<Item = (&'static Setting, OsString)> {
        self.0.into_iter()
    }
}

impl Args for RunOptions {
    fn augment_args(command: Command) -> Command {
        SETTINGS.into_iter().fold(command, |command, setting| command.arg(option(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RunOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &'static Setting| {
            Some((setting, matches.get_one::<OsString>(setting.name)?.clone()))
        };
        Ok(Self(SETTINGS.into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the clap option for a setting. It accepts any text.
fn option(setting: &'static Setting) -> Arg {
    let option = Arg::new(setting.name)
        .long(setting.name)
        .help_heading(setting.group.heading())
        .help(setting.help.replace("{values}", &setting.values().join(", ")))
        .value_parser(clap::value_parser!(OsString));
    let option = match setting.short {
        Some(short) => option.short(short),
        None => option,
    };
    match setting.kind {
        ValueKind::Switch => option
            .value_name(BOOL)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        ValueKind::Optional(name, missing) => option
            .value_name(name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(missing),
        ValueKind::Directory => option.value_name("DIR").value_hint(ValueHint::DirPath),
        ValueKind::Text(name, _) => option.value_name(name),
        ValueKind::Number(name) => option.value_name(name).allow_hyphen_values(true),
    }
}
