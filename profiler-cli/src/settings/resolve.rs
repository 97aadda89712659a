//! What a run records, resolved: flags win over variables, variables over
//! `tprof.toml`, that over the defaults.
//!
//! Every value that was given is checked, also one that another overrides: it
//! would come into force on the day when the override goes.

use crate::cli::RunOptions;
use crate::commands::export::formats;
use crate::settings::sources::{self, CONFIG_FILE, Given, SETTINGS, Source};
use crate::terminal::errors::{Failure, nearest};
use crate::terminal::units::{exact_duration, exact_size, parse_duration, parse_size};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tprof_collect::{
    Activity, Config, DEFAULT_GPU_INTERVAL, DEFAULT_RSS_INTERVAL, DEFAULT_SAMPLE_INTERVAL,
    DEFAULT_SAMPLE_RATE, GPU_INTERVALS, MemMode, OnFull, PerfEvent, RSS_INTERVALS, StackMode,
    highest_sample_rate,
};

const ACTIVITIES: [(&str, Activity); 6] = [
    ("cpu", Activity::Cpu),
    ("gpu", Activity::Gpu),
    ("cuda", Activity::Gpu),
    ("mem", Activity::Mem),
    ("comm", Activity::Comm),
    ("nvtx", Activity::Nvtx),
];
/// What is recorded by default: all that there is.
const ALL: [Activity; 5] =
    [Activity::Cpu, Activity::Gpu, Activity::Mem, Activity::Comm, Activity::Nvtx];

const MEM_MODES: [(&str, MemMode); 3] = [
    ("exact", MemMode::Exact),
    ("sampled", MemMode::Sampled { interval: DEFAULT_SAMPLE_INTERVAL }),
    ("off", MemMode::Off),
];
const STACK_MODES: [(&str, StackMode); 5] = [
    ("auto", StackMode::Auto),
    ("fp", StackMode::Fp),
    ("dwarf", StackMode::Dwarf),
    ("python", StackMode::Python),
    ("off", StackMode::Off),
];
const ON_FULL: [(&str, OnFull); 2] = [("wait", OnFull::Wait), ("drop", OnFull::Drop)];
const FLAGS: [(&str, bool); 8] = [
    ("true", true),
    ("false", false),
    ("1", true),
    ("0", false),
    ("yes", true),
    ("no", false),
    ("on", true),
    ("off", false),
];

/// Options of a run, with what the launcher alone needs.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What the collector needs.
    pub config: Config,
    /// Format to write after the run.
    pub export: Option<String>,
    /// Print no summary.
    pub quiet: bool,
    /// Where each setting came from; absent for a default.
    sources: BTreeMap<&'static str, Source>,
}

/// Resolves the options of a run of `command` that starts in `directory`.
pub fn resolve(
    options: RunOptions,
    command: &[OsString],
    directory: &Path,
) -> Result<Resolved, Failure> {
    let flags = sources::from_flags(options);
    let variables = sources::from_variables(std::env::vars_os())?;
    let named = std::env::var_os(CONFIG_FILE).filter(|path| !path.is_empty());
    let file = sources::from_file(named.as_deref(), directory)?;
    let resolved = from_layers([file, variables, flags], command, directory)?;
    match idle(&resolved.config) {
        Some(other) => Err(Failure::new(format!("`paused` and `{other}` contradict each other"))
            .cause(
                "a paused run records nothing until `tprof ctl start`; no time begins or ends it",
            )
            .hint(format!("leave one of them out: --paused=false, or no --{other}"))),
        None => Ok(resolved),
    }
}

/// A setting that a paused run would have to ignore.
fn idle(config: &Config) -> Option<&'static str> {
    match config {
        Config { paused: false, .. } => None,
        Config { delay: Some(delay), .. } if !delay.is_zero() => Some("delay"),
        Config { duration: Some(_), .. } => Some("duration"),
        _ => None,
    }
}

/// Later layers win.
fn from_layers(
    layers: [Vec<Given>; 3],
    command: &[OsString],
    directory: &Path,
) -> Result<Resolved, Failure> {
    let mut resolved = Resolved {
        config: Config {
            output: PathBuf::new(),
            force: false,
            activities: ALL.to_vec(),
            mem: MemMode::Sampled { interval: DEFAULT_SAMPLE_INTERVAL },
            stacks: StackMode::Auto,
            sample_rate: DEFAULT_SAMPLE_RATE,
            counters: PerfEvent::STANDARD.to_vec(),
            rss_interval: DEFAULT_RSS_INTERVAL,
            gpu_interval: DEFAULT_GPU_INTERVAL,
            on_full: OnFull::Wait,
            max_size: None,
            duration: None,
            delay: None,
            paused: false,
            follow: false,
            redact: false,
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        },
        export: None,
        quiet: false,
        sources: BTreeMap::new(),
    };
    for given in layers.into_iter().flatten() {
        resolved.apply(&given)?;
        resolved.sources.insert(given.name, given.source);
    }
    if resolved.config.output.as_os_str().is_empty() {
        resolved.config.output = default_output(command, directory);
    } else {
        resolved.config.output = directory.join(&resolved.config.output);
    }
    Ok(resolved)
}

impl Resolved {
    fn apply(&mut self, given: &Given) -> Result<(), Failure> {
        let config = &mut self.config;
        match given.name {
            "output" if given.text.is_empty() => {
                return Err(given.refuse("an empty path names no directory", "DIR"));
            }
            "output" => config.output = PathBuf::from(&given.text),
            "force" => config.force = flag(given)?,
            "activities" => config.activities = activities(given)?,
            "mem" => config.mem = mem(given)?,
            "stacks" => config.stacks = one_of(given, &STACK_MODES)?,
            "sample-rate" => config.sample_rate = rate(given)?,
            "counters" => config.counters = counters(given)?,
            "rss-interval" => config.rss_interval = interval(given, RSS_INTERVALS)?,
            "gpu-interval" => config.gpu_interval = interval(given, GPU_INTERVALS)?,
            "max-size" => config.max_size = Some(size(given)?),
            "duration" => config.duration = Some(duration(given, false)?),
            "delay" => config.delay = Some(duration(given, true)?),
            "paused" => config.paused = flag(given)?,
            "follow" => config.follow = flag(given)?,
            "on-full" => config.on_full = one_of(given, &ON_FULL)?,
            "export" => {
                let formats: Vec<_> = formats::names().map(|name| (name, name)).collect();
                self.export = Some(one_of(given, &formats)?.to_owned());
            }
            "redact" => config.redact = flag(given)?,
            "quiet" => self.quiet = flag(given)?,
            name => unreachable!("{name} is not a setting"),
        }
        Ok(())
    }

    /// Whether a setting comes from the command line itself.
    pub fn was_typed(&self, name: &str) -> bool {
        self.sources.get(name) == Some(&Source::Flag)
    }

    /// The configuration as a `tprof.toml` that gives the same run.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for name in SETTINGS {
            let source = match self.sources.get(name) {
                None => String::new(),
                Some(Source::Flag) => format!("  # --{name}"),
                Some(Source::Variable) => format!("  # {}", sources::variable(name)),
                Some(Source::File(path)) => format!("  # {}", path.display()),
            };
            // Writing to a String cannot fail.
            let _ = match self.value(name) {
                Some(value) => writeln!(text, "{name} = {value}{source}"),
                None => writeln!(text, "# {name} is not set"),
            };
        }
        if !self.config.command.is_empty() {
            let command = toml::Value::from(self.config.command.clone());
            let _ = writeln!(text, "# command: {command}");
        }
        text
    }

    fn value(&self, name: &str) -> Option<toml::Value> {
        let config = &self.config;
        Some(match name {
            "output" => config.output.to_string_lossy().into_owned().into(),
            "force" => config.force.into(),
            "activities" => {
                let names = config.activities.iter().map(|one| name_of(*one, &ACTIVITIES));
                names.collect::<Vec<_>>().into()
            }
            "mem" => match config.mem {
                MemMode::Sampled { interval } => format!("sampled={}", exact_size(interval)).into(),
                mode => name_of(mode, &MEM_MODES).into(),
            },
            "stacks" => name_of(config.stacks, &STACK_MODES).into(),
            "sample-rate" => i64::from(config.sample_rate).into(),
            "counters" if config.counters.is_empty() => "none".into(),
            "counters" => {
                let names = config.counters.iter().map(|event| event.name());
                names.collect::<Vec<_>>().into()
            }
            "rss-interval" => exact_duration(config.rss_interval).into(),
            "gpu-interval" => exact_duration(config.gpu_interval).into(),
            "max-size" => exact_size(config.max_size?).into(),
            "duration" => exact_duration(config.duration?).into(),
            "delay" => exact_duration(config.delay?).into(),
            "paused" => config.paused.into(),
            "follow" => config.follow.into(),
            "on-full" => name_of(config.on_full, &ON_FULL).into(),
            "export" => self.export.clone()?.into(),
            "redact" => config.redact.into(),
            "quiet" => self.quiet.into(),
            name => unreachable!("{name} is not a setting"),
        })
    }
}

fn name_of<T: PartialEq>(value: T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, one)| *one == value).map_or("", |(name, _)| name)
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}

fn one_of<T: Copy>(given: &Given, names: &[(&'static str, T)]) -> Result<T, Failure> {
    let text = given.text()?;
    let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        let right = nearest(text, names.iter().copied()).unwrap_or(names[0]);
        given.refuse(format!("it takes {}", listed(&names)), right)
    })
}

/// A switch.
pub fn flag(given: &Given) -> Result<bool, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    FLAGS.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let right = nearest(&text, ["true", "false"]).unwrap_or("true");
        given.refuse("it takes true or false", right)
    })
}

fn activities(given: &Given) -> Result<Vec<Activity>, Failure> {
    let mut found = Vec::new();
    for word in given.text()?.split(',').map(str::trim) {
        let names = ACTIVITIES.map(|(name, _)| name);
        let Some((_, activity)) =
            ACTIVITIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word))
        else {
            let right = nearest(word, names).unwrap_or("mem");
            let why = match word {
                "" => format!("a name is missing; the activities are {}", names.join(", ")),
                _ => format!("no activity is called `{word}`; there are {}", names.join(", ")),
            };
            return Err(given.refuse(why, right));
        };
        found.push(*activity);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn mem(given: &Given) -> Result<MemMode, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    if let Some(interval) = text.strip_prefix("sampled=") {
        return match parse_size(interval) {
            Some(interval) if interval > 0 => Ok(MemMode::Sampled { interval }),
            _ => Err(given.refuse(
                "after `sampled=` comes the mean number of bytes between samples",
                &format!("sampled={}", exact_size(DEFAULT_SAMPLE_INTERVAL)),
            )),
        };
    }
    one_of(given, &MEM_MODES)
        .map_err(|failure| failure.cause("it takes exact, sampled, sampled=BYTES or off"))
}

/// Events to count.
fn counters(given: &Given) -> Result<Vec<PerfEvent>, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    let mut found = match text.as_str() {
        "auto" => return Ok(PerfEvent::STANDARD.to_vec()),
        "none" => return Ok(Vec::new()),
        list => list.split(',').map(str::trim).map(|word| counter(word, given)),
    }
    .collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn counter(word: &str, given: &Given) -> Result<PerfEvent, Failure> {
    let found = PerfEvent::ALL.iter().find(|(name, _)| *name == word);
    found.map(|(_, event)| *event).ok_or_else(|| {
        let names = PerfEvent::ALL.map(|(name, _)| name);
        let right = nearest(word, names).unwrap_or("auto");
        let why = match word {
            "" => "an event's name is missing",
            "auto" | "none" => &format!("`{word}` stands alone"),
            _ => &format!("no event is called `{word}`"),
        };
        given.refuse(
            format!("{why}; it takes auto, or none, or some of {}", names.join(", ")),
            right,
        )
    })
}

/// Samples a second, up to what the kernel grants.
fn rate(given: &Given) -> Result<u32, Failure> {
    let most = highest_sample_rate();
    let rate = given.text()?.parse::<u64>().ok().filter(|rate| *rate > 0);
    match rate {
        Some(rate) if rate <= u64::from(most) => Ok(rate as u32),
        Some(_) => Err(given.refuse(
            format!("this machine samples {most} times a second at most (kernel.perf_event_max_sample_rate)"),
            &most.to_string(),
        )),
        None => Err(given.refuse(
            format!("a rate is a whole number of samples a second, from 1 to {most}"),
            "99",
        )),
    }
}

/// A time between readings, within what can be kept.
fn interval(given: &Given, bounds: RangeInclusive<Duration>) -> Result<Duration, Failure> {
    let every = parse_duration(given.text()?);
    every.filter(|every| bounds.contains(every)).ok_or_else(|| {
        let (least, most) = (exact_duration(*bounds.start()), exact_duration(*bounds.end()));
        let why = format!("a time between readings is from {least} to {most}");
        given.refuse(why, if every > Some(*bounds.end()) { &most } else { &least })
    })
}

fn size(given: &Given) -> Result<u64, Failure> {
    parse_size(given.text()?).filter(|size| *size > 0).ok_or_else(|| {
        given.refuse("a size is a number above 0 and a unit, such as 512K, 64MiB or 2G", "2G")
    })
}

fn duration(given: &Given, zero: bool) -> Result<Duration, Failure> {
    parse_duration(given.text()?).filter(|time| zero || !time.is_zero()).ok_or_else(|| {
        let above = if zero { "" } else { " above 0" };
        let why = format!("a time is a number{above} and a unit, such as 500ms, 2s or 5m");
        given.refuse(why, "2s")
    })
}

/// `tprof-<command>-<time>`, with a number if that is taken.
fn default_output(command: &[OsString], directory: &Path) -> PathBuf {
    let name = command.first().and_then(|word| Path::new(word).file_name());
    let name = name.map_or_else(|| "session".into(), |name| name.to_string_lossy());
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(64).collect();
    let base = format!("tprof-{name}-{}", crate::launch::system::local_time());
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    let mut paths = std::iter::once(base.clone()).chain(numbered).map(|name| directory.join(name));
    paths.find(|path| path.symlink_metadata().is_err()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
