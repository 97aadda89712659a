//! Parses the values of settings, and refuses invalid ones.

use super::given::GivenValue;
use std::ops::RangeInclusive;
use std::time::Duration;
use tprof_collect::{
    Activity, CallSource, DEFAULT_GPU_METRICS, DEFAULT_SAMPLE_INTERVAL, GPU_METRICS_INTERVALS,
    GraphDetail, IfExists, KinetoWindow, MemMode, NcclEvent, OnFull, OperatorDetail, PerfEvent,
    STALL_PERIOD, STALL_PERIODS, StackMode,
};
use tprof_facts::units::{exact_duration, exact_size, parse_duration, parse_size};
use tprof_sampler::cpu::highest_rate;
use tprof_ui::errors::{Failure, nearest};

/// Names of activities. The first name of each is shown.
pub const ACTIVITIES: [(&str, Activity); 6] = [
    ("cpu", Activity::Cpu),
    ("gpu", Activity::Gpu),
    ("cuda", Activity::Gpu),
    ("mem", Activity::Mem),
    ("comm", Activity::Comm),
    ("nvtx", Activity::Nvtx),
];

/// Names of what is recorded and what isn't.
pub const ON_OR_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Names of the ways to record allocations.
pub const MEM_MODES: [(&str, MemMode); 3] = [
    ("exact", MemMode::Exact),
    ("sampled", MemMode::Sampled { interval: DEFAULT_SAMPLE_INTERVAL }),
    ("off", MemMode::Off),
];
/// The values of `--nccl`. Each stands for something that is recorded of NCCL besides its operations.
pub const NCCL_EVENTS: [(&str, NcclEvent); 3] =
    [("log", NcclEvent::Log), ("proxy", NcclEvent::Proxy), ("kernels", NcclEvent::Kernels)];
/// Names of the ways to record CUDA graphs.
pub const GRAPH_DETAILS: [(&str, GraphDetail); 2] =
    [("graph", GraphDetail::Graph), ("node", GraphDetail::Node)];
/// Names of the parts of tprof that can record the CUDA calls that start work.
pub const CALL_SOURCES: [(&str, CallSource); 3] =
    [("auto", CallSource::Auto), ("cupti", CallSource::Cupti), ("hooks", CallSource::Hooks)];
/// Names of the ways to record PyTorch operators.
pub const OPERATOR_DETAILS: [(&str, OperatorDetail); 4] = [
    ("auto", OperatorDetail::Auto),
    ("names", OperatorDetail::Names),
    ("shapes", OperatorDetail::Shapes),
    ("off", OperatorDetail::Off),
];
/// Names of the ways to determine the overhead, and whether recorded and unrecorded steps are
/// compared.
pub const OVERHEADS: [(&str, bool); 2] = [("estimate", false), ("paired", true)];
/// Names of the ways to unwind stacks.
pub const STACK_MODES: [(&str, StackMode); 5] = [
    ("auto", StackMode::Auto),
    ("fp", StackMode::Fp),
    ("dwarf", StackMode::Dwarf),
    ("python", StackMode::Python),
    ("off", StackMode::Off),
];
/// Names of the ways to continue if the directory already contains a run.
pub const IF_EXISTS_MODES: [(&str, IfExists); 4] = [
    ("rename", IfExists::Rename),
    ("join", IfExists::Join),
    ("force", IfExists::Force),
    ("fail", IfExists::Fail),
];
/// Names of the ways to continue when a buffer is full.
pub const ON_FULL: [(&str, OnFull); 2] = [("wait", OnFull::Wait), ("drop", OnFull::Drop)];

/// Names for whether data about libraries is cached between runs.
pub const TABLE_CACHE_MODES: [(&str, bool); 2] = [("on", true), ("off", false)];
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

/// Returns the name of a value; the first one if it has several.
pub fn name_of<T: PartialEq>(value: T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, one)| *one == value).map_or("", |(name, _)| name)
}

/// Returns all names in a table of values.
pub fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

/// Returns names as one says them: `a, b or c`.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}

/// Returns the value with the given name. Upper and lower case are the same.
pub fn one_of<T: Copy>(given: &GivenValue, names: &[(&'static str, T)]) -> Result<T, Failure> {
    let text = given.text()?;
    let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        let right = nearest(text, names.iter().copied()).unwrap_or(names[0]);
        given.refuse(format!("the values are {}", listed(&names)), right)
    })
}

/// Parses true or false.
pub fn flag(given: &GivenValue) -> Result<bool, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    FLAGS.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let right = nearest(&text, ["true", "false"]).unwrap_or("true");
        given.refuse("the values are true or false", right)
    })
}

/// Parses names of activities, separated by commas.
pub fn activities(given: &GivenValue) -> Result<Vec<Activity>, Failure> {
    let mut found = Vec::new();
    for word in given.text()?.split(',').map(str::trim) {
        let names = ACTIVITIES.map(|(name, _)| name);
        let Some((_, activity)) =
            ACTIVITIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word))
        else {
            let right = nearest(word, names).unwrap_or("mem");
            let why = match word {
                "" => format!("an activity is missing; the activities are {}", names.join(", ")),
                _ => {
                    format!("`{word}` is not an activity; the activities are {}", names.join(", "))
                }
            };
            return Err(given.refuse(why, right));
        };
        found.push(*activity);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Parses a way to record allocations.
pub fn mem(given: &GivenValue) -> Result<MemMode, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    if let Some(interval) = text.strip_prefix("sampled=") {
        return match parse_size(interval) {
            Some(interval) if interval > 0 => Ok(MemMode::Sampled { interval }),
            _ => Err(given.refuse(
                "`sampled=` needs the mean number of bytes between samples",
                &format!("sampled={}", exact_size(DEFAULT_SAMPLE_INTERVAL)),
            )),
        };
    }
    one_of(given, &MEM_MODES)
        .map_err(|failure| failure.cause("the values are exact, sampled, sampled=BYTES or off"))
}

/// Parses names of [`NCCL_EVENTS`], separated by commas.
pub fn nccl_events(given: &GivenValue) -> Result<Vec<NcclEvent>, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for word in text.split(',').map(str::trim) {
        let Some((_, event)) = NCCL_EVENTS.iter().find(|(name, _)| *name == word) else {
            let names = NCCL_EVENTS.map(|(name, _)| name);
            let right = nearest(word, [&["none"], &names[..]].concat()).unwrap_or("none");
            let values = format!("the values are none, or a list of {}", names.join(", "));
            return Err(given.refuse(values, right));
        };
        found.push(*event);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Largest number of steps in a window of PyTorch's profiler, because its trace is in memory until
/// the window's end.
const MOST_STEPS: u32 = 1000;

/// Parses the options of a window of PyTorch's profiler, separated by commas. Returns `None` if it
/// is `off`.
pub fn kineto_window(given: &GivenValue) -> Result<Option<KinetoWindow>, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    if FLAGS.iter().any(|(name, is_on)| *name == text && !is_on) {
        return Ok(None);
    }
    if FLAGS.iter().any(|(name, is_on)| *name == text && *is_on) {
        return Ok(Some(KinetoWindow::default()));
    }
    let mut window = KinetoWindow { stacks: false, shapes: false, ..KinetoWindow::default() };
    let mut has_part = false;
    for word in text.split(',').map(str::trim) {
        match word.split_once('=') {
            Some(("steps", number)) => {
                let steps = number.parse().ok().filter(|steps| (1..=MOST_STEPS).contains(steps));
                window.steps = steps.ok_or_else(|| {
                    let why = format!("`steps=` needs a number from 1 to {MOST_STEPS}");
                    given.refuse(why, "steps=3")
                })?;
                continue;
            }
            None if word == "stacks" => window.stacks = true,
            None if word == "shapes" => window.shapes = true,
            None if word == "names" => {}
            _ => {
                let right = nearest(word, ["stacks", "shapes", "names", "steps=3", "off"]);
                let why = "the values are off, or a list of stacks, shapes, names and steps=N";
                return Err(given.refuse(why, right.unwrap_or("stacks")));
            }
        }
        has_part = true;
    }
    let whole = KinetoWindow { steps: window.steps, ..KinetoWindow::default() };
    Ok(Some(if has_part { window } else { whole }))
}

/// Formats the options of a window as text that [`kineto_window`] parses.
pub fn kineto_text(window: Option<KinetoWindow>) -> String {
    let Some(KinetoWindow { steps, stacks, shapes }) = window else { return "off".to_owned() };
    let mut words = vec![format!("steps={steps}")];
    words.extend(stacks.then(|| "stacks".to_owned()));
    words.extend(shapes.then(|| "shapes".to_owned()));
    if !stacks && !shapes {
        words.push("names".to_owned());
    }
    words.join(",")
}

/// Parses the period of samples of GPU instructions. Returns the power of 2, or `None` for no
/// samples.
pub fn sampling_period(given: &GivenValue) -> Result<Option<u32>, Failure> {
    let text = given.text()?.trim().to_ascii_lowercase();
    let power = match text.as_str() {
        "off" | "false" | "0" => return Ok(None),
        "on" | "true" => return Ok(Some(STALL_PERIOD)),
        text => match text.split_once('^') {
            Some((base, power)) => power.parse().ok().filter(|_| base == "2"),
            None => {
                text.parse().ok().filter(|cycles: &u64| cycles.is_power_of_two()).map(u64::ilog2)
            }
        },
    };
    power.filter(|power| STALL_PERIODS.contains(power)).map(Some).ok_or_else(|| {
        let why = "the values are off, on, or a power of 2 from 2^5 to 2^31 cycles";
        given.refuse(why, "2^20")
    })
}

/// Parses the time between samples of the devices' counters, or whether there are any.
pub fn gpu_metrics(given: &GivenValue) -> Result<Option<Duration>, Failure> {
    let text = given.text()?.to_ascii_lowercase();
    match FLAGS.iter().find(|(name, _)| *name == text) {
        Some((_, true)) => Ok(Some(DEFAULT_GPU_METRICS)),
        Some((_, false)) => Ok(None),
        None => interval(given, GPU_METRICS_INTERVALS).map(Some),
    }
}

/// Parses the list of events to count.
pub fn counters(given: &GivenValue) -> Result<Vec<PerfEvent>, Failure> {
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

fn counter(word: &str, given: &GivenValue) -> Result<PerfEvent, Failure> {
    let found = PerfEvent::ALL.iter().find(|(name, _)| *name == word);
    found.map(|(_, event)| *event).ok_or_else(|| {
        let names = PerfEvent::ALL.map(|(name, _)| name);
        let right = nearest(word, names).unwrap_or("auto");
        let why = match word {
            "" => "an event is missing",
            "auto" | "none" => &format!("`{word}` cannot be combined with events"),
            _ => &format!("`{word}` is not an event"),
        };
        given.refuse(
            format!("{why}; the values are auto, none, or a list of {}", names.join(", ")),
            right,
        )
    })
}

/// Parses a number of samples per second, up to the highest that the kernel allows.
pub fn rate(given: &GivenValue) -> Result<u32, Failure> {
    let most = highest_rate();
    let rate = given.text()?.parse::<u64>().ok().filter(|rate| *rate > 0);
    match rate {
        Some(rate) if rate <= u64::from(most) => Ok(rate as u32),
        Some(_) => Err(given.refuse(
            format!("this machine allows at most {most} samples per second (kernel.perf_event_max_sample_rate)"),
            &most.to_string(),
        )),
        None => Err(given.refuse(
            format!("the rate is a whole number of samples per second, from 1 to {most}"),
            "99",
        )),
    }
}

/// Parses a share in percent, above 0 and up to 100. The sign may be left out.
pub fn percent(given: &GivenValue) -> Result<f64, Failure> {
    let text = given.text()?;
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>();
    number.ok().filter(|percent| *percent > 0.0 && *percent <= 100.0).ok_or_else(|| {
        given.refuse("the value is a number above 0 and up to 100, in percent", "1%")
    })
}

/// Parses a time between two readings, which must be within the bounds.
pub fn interval(given: &GivenValue, bounds: RangeInclusive<Duration>) -> Result<Duration, Failure> {
    let every = parse_duration(given.text()?);
    every.filter(|every| bounds.contains(every)).ok_or_else(|| {
        let (least, most) = (exact_duration(*bounds.start()), exact_duration(*bounds.end()));
        let why = format!("the interval is a time from {least} to {most}");
        given.refuse(why, if every > Some(*bounds.end()) { &most } else { &least })
    })
}

/// Parses a size in bytes, which must not be 0.
pub fn size(given: &GivenValue) -> Result<u64, Failure> {
    parse_size(given.text()?).filter(|size| *size > 0).ok_or_else(|| {
        given.refuse("the size is a number above 0 with a unit, such as 512K, 64MiB or 2G", "2G")
    })
}

/// Parses a time. It may be 0 if `zero` is set.
pub fn duration(given: &GivenValue, zero: bool) -> Result<Duration, Failure> {
    parse_duration(given.text()?).filter(|time| zero || !time.is_zero()).ok_or_else(|| {
        let above = if zero { "" } else { " above 0" };
        let why = format!("the time is a number{above} with a unit, such as 500ms, 2s or 5m");
        given.refuse(why, "2s")
    })
}
