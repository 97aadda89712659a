//! Parses what a run watches for (`--on`, `--on-hang`), and how much it keeps until then (`--keep`).

use super::given::GivenValue;
use super::resolved::Resolved;
use nix::sys::signal::Signal;
use std::time::Duration;
use tprof_collect::{Config, DumpOn, Keep, OnHang};
use tprof_facts::units::{self, parse_duration, parse_size};
use tprof_ui::errors::Failure;

/// Least time after which a job may count as hanging.
const LEAST_HANG: Duration = Duration::from_secs(1);

/// Parses the time after which a job counts as hanging, and whether it is ended then.
pub fn on_hang(given: &GivenValue) -> Result<OnHang, Failure> {
    let text = given.text()?;
    let (time, rest) = text.split_once(',').map_or((text, None), |(time, rest)| (time, Some(rest)));
    let after = hang_time(time, given, "5m")?;
    match rest.map(str::trim) {
        None => Ok(OnHang { after, stop: false }),
        Some("stop") => Ok(OnHang { after, stop: true }),
        Some(_) => Err(given.refuse("only `stop` may follow the time", "5m,stop")),
    }
}

fn hang_time(text: &str, given: &GivenValue, right: &str) -> Result<Duration, Failure> {
    let after = parse_duration(text.trim()).filter(|after| *after >= LEAST_HANG);
    after.ok_or_else(|| {
        let why = "the time is a number with a unit, at least 1s, such as 90s or 5m";
        given.refuse(why, right)
    })
}

/// Least multiple of its usual time beyond which a step may count as slow.
const LEAST_TIMES: f64 = 1.5;
/// Least size of what is kept, bytes.
const LEAST_KEPT: u64 = 4 << 20;

/// Parses events, separated by commas, and sets what is done at each.
pub fn set_events(resolved: &mut Resolved, given: &GivenValue) -> Result<(), Failure> {
    let config = &mut resolved.config;
    (config.on_slow_step, config.dump_on) = (None, DumpOn::default());
    for event in given.text()?.split(',').map(str::trim) {
        let (event, value) = match event.split_once('=') {
            Some((event, value)) => (event.trim(), Some(value.trim())),
            None => (event, None),
        };
        match (event, value) {
            ("slow-step", value) => {
                config.on_slow_step = Some(times(value.unwrap_or_default(), given)?);
            }
            ("hang", Some(time)) => {
                let after = hang_time(time, given, "hang=5m")?;
                config.on_hang = Some(OnHang { after, stop: false });
            }
            ("signal", Some(name)) => config.dump_on.signal = Some(signal(name, given)?),
            ("oom", None) => config.dump_on.oom = true,
            ("error", None) => config.dump_on.error = true,
            _ => {
                let why = "the events are slow-step=Nx, hang=TIME, oom, error and signal=NAME";
                return Err(given.refuse(why, "slow-step=3x,error"));
            }
        }
    }
    Ok(())
}

fn times(value: &str, given: &GivenValue) -> Result<f64, Failure> {
    let times = value.strip_suffix(['x', 'X']).unwrap_or(value).parse::<f64>().ok();
    times.filter(|times| times.is_finite() && *times >= LEAST_TIMES).ok_or_else(|| {
        let why = "a multiple of the usual time of a step, at least 1.5x, must follow";
        given.refuse(why, "slow-step=3x")
    })
}

/// Parses the name of a signal that programs may use as they like, or that only informs.
fn signal(name: &str, given: &GivenValue) -> Result<i32, Failure> {
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    match full.parse::<Signal>() {
        Ok(signal @ (Signal::SIGUSR1 | Signal::SIGUSR2 | Signal::SIGHUP | Signal::SIGQUIT)) => {
            Ok(signal as i32)
        }
        _ => Err(given.refuse("the signals are USR1, USR2, HUP and QUIT", "signal=USR2")),
    }
}

/// Formats the events for `tprof.toml`; `None` without any.
pub fn shown_events(config: &Config) -> Option<String> {
    let DumpOn { error, oom, signal } = config.dump_on;
    let name = |signal| units::signal(signal).trim_start_matches("SIG").to_owned();
    let events: Vec<String> = [
        config.on_slow_step.map(|times| format!("slow-step={times}x")),
        oom.then(|| "oom".to_owned()),
        error.then(|| "error".to_owned()),
        signal.map(|signal| format!("signal={}", name(signal))),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!events.is_empty()).then(|| events.join(","))
}

/// Parses how much is kept: a time, a number of steps, a size, or several of them.
pub fn keep(given: &GivenValue) -> Result<Keep, Failure> {
    let mut keep = Keep::default();
    for limit in given.text()?.split(',').map(str::trim) {
        let steps = limit.strip_prefix("steps=");
        if let Some(steps) = steps {
            keep.steps = Some(steps.parse().ok().filter(|steps| *steps > 0).ok_or_else(|| {
                given.refuse("`steps=` needs a number of steps, at least 1", "steps=50")
            })?);
        } else if limit.ends_with(['b', 'B']) {
            let bytes = parse_size(limit).filter(|bytes| *bytes >= LEAST_KEPT);
            keep.bytes = Some(bytes.ok_or_else(|| {
                given.refuse("a size is a number with a unit, at least 4MiB", "2GiB")
            })?);
        } else {
            let time = parse_duration(limit).filter(|time| *time >= Duration::from_secs(1));
            keep.time = Some(time.ok_or_else(|| {
                let why = "it is a time of at least 1s, a number of steps or a size: 120s, steps=50, 2GiB, or several of them";
                given.refuse(why, "120s")
            })?);
        }
    }
    Ok(keep)
}

/// Refuses events at which what is kept is written, if everything is kept.
pub fn check_events(config: &Config) -> Result<(), Failure> {
    if config.keep.is_some() || config.dump_on == DumpOn::default() {
        return Ok(());
    }
    let event = if config.dump_on.error {
        "error"
    } else if config.dump_on.oom {
        "oom"
    } else {
        "signal"
    };
    Err(Failure::new(format!("`on = {event}` needs `keep`"))
        .cause(format!(
            "at {event}, tprof writes what was kept last, and this run keeps everything"
        ))
        .hint(format!("--keep 120s --on {}", shown_events(config).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::super::given::Source;
    use super::*;

    fn keep_of(text: &str) -> Option<Keep> {
        let (name, source) = ("keep", Source::Flag);
        keep(&GivenValue { name, text: text.into(), source }).ok()
    }

    #[test]
    fn what_is_kept_is_a_time_steps_a_size_or_several() {
        let time = Some(Duration::from_secs(120));
        assert_eq!(keep_of("120s"), Some(Keep { time, ..Keep::default() }));
        assert_eq!(keep_of("2m"), Some(Keep { time, ..Keep::default() }), "minutes, not a size");
        let bytes = Some(2 << 30);
        assert_eq!(keep_of("2GiB"), Some(Keep { bytes, ..Keep::default() }));
        let all = Keep { time, steps: Some(50), bytes };
        assert_eq!(keep_of("2m, steps=50,2GiB"), Some(all));
        assert_eq!(keep_of(&all.to_string()), Some(all), "{all}");
        for wrong in ["", "0s", "steps=0", "steps=x", "1KiB", "2G", "forever", "120s,"] {
            assert_eq!(keep_of(wrong), None, "{wrong}");
        }
    }
}
