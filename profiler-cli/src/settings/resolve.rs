//! Resolves what a run records. Options override variables, variables override `tprof.toml`, and
//! `tprof.toml` overrides the defaults.
//!
//! Every value is checked, even if another one overrides it. Otherwise an invalid value would be
//! noticed only when the other one is removed.

use super::events;
use super::given::{Source, variable};
use super::options::RunOptions;
use super::resolved::Resolved;
use super::schedule::ScheduleParts;
use super::sources::{self, CONFIG_FILE, SettingsLayer};
use super::table::{ACTIVE, FORCE, IF_EXISTS, REPEAT, SCHEDULE, SETTINGS, WAIT, WARMUP};
use super::values;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tprof_collect::{
    Activity, Config, DEFAULT_GPU_INTERVAL, DEFAULT_RSS_INTERVAL, DEFAULT_SAMPLE_INTERVAL,
    IfExists, MemMode, NcclEvent, OnFull, OperatorDetail, PerfEvent, StackMode,
};
use tprof_sampler::cpu::DEFAULT_RATE;
use tprof_ui::errors::Failure;

/// Activities that are recorded by default: all of them.
const ALL: [Activity; 5] =
    [Activity::Cpu, Activity::Gpu, Activity::Mem, Activity::Comm, Activity::Nvtx];

/// Resolves the options of a run of `command` that is started in `directory`.
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
    check_modules(&resolved.config)?;
    check_kineto(&resolved.config)?;
    check_logs(&resolved.config)?;
    events::check_events(&resolved.config)?;
    check_paused(&resolved.config)?;
    Ok(resolved)
}

/// Refuses settings that a paused run would ignore.
pub fn check_paused(config: &Config) -> Result<(), Failure> {
    match idle(config) {
        Some(other) => Err(Failure::new(format!("`paused` and `{other}` exclude each other"))
            .cause("--paused waits for `tprof ctl start`, so --delay and --duration have no effect")
            .hint(format!("use only one: --paused=false, or no --{other}"))),
        None => Ok(()),
    }
}

/// Returns the name of a setting that a paused run would ignore, if one is set.
fn idle(config: &Config) -> Option<&'static str> {
    match config {
        Config { paused: false, .. } => None,
        Config { delay: Some(delay), .. } if !delay.is_zero() => Some("delay"),
        Config { duration: Some(_), .. } => Some("duration"),
        _ => None,
    }
}

/// Refuses to record modules without operators, because calls of modules are ranges among the
/// operators.
fn check_modules(config: &Config) -> Result<(), Failure> {
    if !config.modules || config.operators != OperatorDetail::Off {
        return Ok(());
    }
    Err(Failure::new("`modules` and `operators = off` exclude each other")
        .cause("tprof records calls of PyTorch's modules in the same way as operators")
        .hint("use only one: --operators=auto, or --modules=false"))
}

/// Refuses a window of PyTorch's profiler without operators, because these show when steps run.
/// Refuses it with `--redact` too, because the window's trace contains paths.
fn check_kineto(config: &Config) -> Result<(), Failure> {
    if config.kineto.is_none() {
        return Ok(());
    }
    if config.redact {
        return Err(Failure::new("`kineto` and `redact` exclude each other")
            .cause("a trace of PyTorch's profiler has paths of files")
            .hint("use only one: --redact=false, or --kineto=off"));
    }
    if config.operators != OperatorDetail::Off {
        return Ok(());
    }
    Err(Failure::new("`kineto` and `operators = off` exclude each other")
        .cause("the window begins once PyTorch's ranges show that steps run")
        .hint("use only one: --operators=auto, or --kineto=off"))
}

/// Refuses logs that a run keeps as they are with `--redact`.
fn check_logs(config: &Config) -> Result<(), Failure> {
    let refusal = |option: &str, cause: &str, without: &str| {
        Err(Failure::new(format!("`{option}` and `redact` exclude each other"))
            .cause(cause)
            .hint(format!("use only one: --redact=false, or {without}")))
    };
    if config.redact && config.compile {
        let cause = "the log of torch.compile has paths and lines of source";
        return refusal("compile", cause, "--compile=false");
    }
    if config.redact && config.nccl.contains(&NcclEvent::Log) {
        return refusal("nccl = log", "NCCL's log has hosts and addresses", "--nccl=none");
    }
    Ok(())
}

/// Refuses `force` together with another `if-exists` from the same source, because neither
/// overrides the other.
fn check_force(layer: &SettingsLayer) -> Result<(), Failure> {
    let of = |name: &str| layer.iter().find(|(setting, _)| setting.name == name);
    let (Some((_, force)), Some((_, mode))) = (of(FORCE.name), of(IF_EXISTS.name)) else {
        return Ok(());
    };
    let asks = values::one_of(mode, &values::IF_EXISTS_MODES)? == IfExists::Force;
    if values::flag(force)? == asks {
        return Ok(());
    }
    Err(Failure::new(format!("{force} and {mode} exclude each other"))
        .cause(format!("one is `{}`, the other `{}`", force.text()?, mode.text()?))
        .hint("use only --if-exists"))
}

/// Refuses a part of a schedule together with `schedule` from the same source, because `schedule`
/// contains that part too.
fn check_parts(layer: &SettingsLayer) -> Result<(), Failure> {
    let of = |name: &str| layer.iter().find(|(setting, _)| setting.name == name);
    let parts = [&WAIT, &WARMUP, &ACTIVE, &REPEAT];
    let part = parts.into_iter().find_map(|part| of(part.name));
    let (Some((_, schedule)), Some((setting, part))) = (of(SCHEDULE.name), part) else {
        return Ok(());
    };
    Err(Failure::new(format!("{schedule} and {part} exclude each other"))
        .cause(format!("`{}` is a part of the schedule", setting.name))
        .hint(format!("--schedule {},{}={}", schedule.text()?, setting.name, part.text()?)))
}

/// Applies the layers in order. A later layer overrides an earlier one.
fn from_layers(
    layers: [SettingsLayer; 3],
    command: &[OsString],
    directory: &Path,
) -> Result<Resolved, Failure> {
    let mut resolved = Resolved {
        config: Config {
            output: PathBuf::new(),
            if_exists: IfExists::Rename,
            activities: ALL.to_vec(),
            mem: MemMode::Sampled { interval: DEFAULT_SAMPLE_INTERVAL },
            stacks: StackMode::Auto,
            sample_rate: DEFAULT_RATE,
            counters: PerfEvent::STANDARD.to_vec(),
            nccl: Vec::new(),
            cuda_graphs: tprof_collect::GraphDetail::Graph,
            cuda_calls: tprof_collect::CallSource::Auto,
            operators: tprof_collect::OperatorDetail::Auto,
            modules: false,
            kineto: None,
            compile: false,
            io: true,
            gpu_stalls: None,
            rss_interval: DEFAULT_RSS_INTERVAL,
            gpu_interval: DEFAULT_GPU_INTERVAL,
            gpu_metrics: None,
            budget_percent: None,
            on_full: OnFull::Wait,
            table_cache: crate::launch::caches::tables(),
            max_size: None,
            duration: None,
            delay: None,
            on_hang: None,
            on_slow_step: None,
            keep: None,
            dump_on: tprof_collect::DumpOn::default(),
            paused: false,
            schedule: None,
            capture: None,
            follow: false,
            redact: false,
            started_in: None,
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        },
        parts: ScheduleParts::default(),
        export: None,
        quiet: false,
        sources: BTreeMap::new(),
    };
    for layer in layers {
        for (setting, given) in &layer {
            (setting.set)(&mut resolved, given)?;
            resolved.sources.insert(setting.name, given.source.clone());
        }
        check_force(&layer)?;
        check_parts(&layer)?;
    }
    resolved.parts.settle(&mut resolved.config)?;
    if resolved.config.output.as_os_str().is_empty() {
        resolved.config.output = default_output(command, directory);
    } else {
        resolved.config.output = directory.join(&resolved.config.output);
    }
    Ok(resolved)
}

impl Resolved {
    /// Returns the configuration as the text of a `tprof.toml` that results in the same run.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for setting in SETTINGS {
            let name = setting.name;
            let source = match self.sources.get(name) {
                None => String::new(),
                Some(Source::Flag) => format!("  # --{name}"),
                Some(Source::Variable) => format!("  # {}", variable(name)),
                Some(Source::File(path)) => format!("  # {}", path.display()),
            };
            // Writing to a String cannot fail.
            let _ = match (setting.show)(self) {
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
}

/// Returns the path `tprof-<command>-<time>`, with a number added if that exists.
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
