//! Builds the schedule and the capture of a run from the settings that are parts of them.

use super::given::GivenValue;
use super::values;
use tprof_collect::{Capture, CaptureEnd, CaptureRange, Config, ScheduleUnit, Timetable};
use tprof_ui::errors::{Failure, nearest};

/// Units in which a schedule counts, by name.
pub const UNITS: [(&str, ScheduleUnit); 3] = [
    ("step", ScheduleUnit::Step),
    ("epoch", ScheduleUnit::Epoch),
    ("second", ScheduleUnit::Second),
];

/// Actions at the end of a capture, by name.
pub const CAPTURE_ENDS: [(&str, CaptureEnd); 3] =
    [("stop", CaptureEnd::Stop), ("stop-job", CaptureEnd::StopJob), ("repeat", CaptureEnd::Repeat)];

/// The parts of a schedule and a capture that were given.
#[derive(Debug, Clone, Default)]
pub struct ScheduleParts {
    /// Parts of the schedule, in the order of [`NAMES`].
    parts: [Option<u32>; NAMES.len()],
    /// Unit in which the parts count.
    pub unit: Option<ScheduleUnit>,
    /// Range that is captured.
    pub range: Option<Range>,
    /// Action at the end of the range.
    pub end: Option<CaptureEnd>,
    /// Whether recorded steps are compared with unrecorded ones, to measure the overhead.
    pub paired: bool,
}

/// A value of `--capture-range`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// A range that the program marks.
    Of(CaptureRange),
    /// The steps from the first to the second number.
    Steps(u32, u32),
}

/// Names of the parts in `--schedule`.
const NAMES: [&str; 6] = ["wait", "warmup", "active", "repeat", "skip-first", "skip-first-wait"];
/// A valid schedule, as an example in errors.
const EXAMPLE: &str = "wait=3,warmup=1,active=3,repeat=1";

impl ScheduleParts {
    /// Parses `--schedule`. Parts that it does not name count as not given.
    pub fn read(&mut self, given: &GivenValue) -> Result<(), Failure> {
        let mut parts = [None; NAMES.len()];
        for part in given.text()?.split(',').map(str::trim) {
            let Some((name, number)) = part.split_once('=') else {
                let why = format!(
                    "`{part}` is not a part such as wait=3; the parts are {}",
                    NAMES.join(", ")
                );
                return Err(given.refuse(why, EXAMPLE));
            };
            let name = name.trim().to_ascii_lowercase().replace('_', "-");
            let Some(at) = NAMES.iter().position(|known| *known == name) else {
                let right = nearest(&name, NAMES).map(|right| format!(": {right}?"));
                let why =
                    format!("`{name}` is not a part of a schedule{}", right.unwrap_or_default());
                return Err(given.refuse(why, EXAMPLE));
            };
            let number = number.trim().parse::<u32>().map_err(|_| {
                given.refuse(format!("`{part}`: a part is a whole number from 0"), EXAMPLE)
            })?;
            if NAMES[at] == "skip-first-wait" && number > 1 {
                return Err(given.refuse(
                    format!("`{part}`: 1 leaves out the first wait, 0 does not"),
                    EXAMPLE,
                ));
            }
            if parts[at].replace(number).is_some() {
                return Err(given.refuse(format!("`{name}` is given twice"), EXAMPLE));
            }
        }
        self.parts = parts;
        Ok(())
    }

    /// Parses an option that gives a single part.
    pub fn read_part(&mut self, given: &GivenValue) -> Result<(), Failure> {
        let number = given
            .text()?
            .parse::<u32>()
            .map_err(|_| given.refuse("a part of a schedule is a whole number from 0", "1"))?;
        if let Some(at) = NAMES.iter().position(|known| *known == given.name) {
            self.parts[at] = Some(number);
        }
        Ok(())
    }

    /// Returns a part by its name.
    pub fn part(&self, name: &str) -> Option<u32> {
        self.parts[NAMES.iter().position(|known| *known == name)?]
    }

    /// Formats the parts as a value of `--schedule`; `None` if no part was given.
    pub fn text(&self) -> Option<String> {
        let given = NAMES.iter().zip(self.parts);
        let parts: Vec<_> =
            given.filter_map(|(name, part)| Some(format!("{name}={}", part?))).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }

    /// Applies the parts to a configuration.
    pub fn settle(&self, config: &mut Config) -> Result<(), Failure> {
        if self.paired && (self.range.is_some() || self.text().is_some()) {
            let other = if self.range.is_some() { "capture-range" } else { "schedule" };
            return Err(Failure::new(format!(
                "`overhead = paired` and `{other}` exclude each other"
            ))
            .cause("each of them decides which steps are recorded")
            .hint(format!("use only one: --overhead estimate, or no --{other}")));
        }
        config.schedule = match (&self.range, self.text(), self.unit) {
            (Some(_), Some(_), _) => {
                return Err(Failure::new("a schedule and `capture-range` exclude each other")
                    .cause("each of them decides when recording is on")
                    .hint("use only one: --schedule, or --capture-range"));
            }
            (Some(Range::Steps(first, last)), None, None) => {
                let active = last - first + 1;
                Some(Timetable { active, repeat: 1, skip_first: *first, ..Timetable::default() })
            }
            (None, Some(_), _) => Some(self.timetable()?),
            (_, None, Some(_)) => {
                return Err(Failure::new("`unit` needs a schedule")
                    .cause("it is the unit in which --schedule counts")
                    .hint(format!("--schedule {EXAMPLE} --unit epoch")));
            }
            (None, None, None) if self.paired => Some(Timetable::PAIRED),
            (_, None, None) => None,
        };
        config.capture = match (&self.range, self.end) {
            (Some(Range::Of(range)), end) => {
                Some(Capture { range: range.clone(), end: end.unwrap_or_default() })
            }
            (_, None) => None,
            (Some(Range::Steps(..)), Some(CaptureEnd::Stop)) => None,
            (Some(Range::Steps(..)), Some(_)) => {
                return Err(Failure::new(
                    "`capture-range = step:A-B` and this `capture-end` exclude each other",
                )
                .cause("steps A to B occur only once, and their end cannot end the job")
                .hint("--capture-end stop; or --schedule with repeat=0"));
            }
            (None, Some(_)) => {
                return Err(Failure::new("`capture-end` needs `capture-range`")
                    .cause("it decides what happens at the end of the captured range")
                    .hint("--capture-range nvtx:NAME --capture-end repeat"));
            }
        };
        match self.overridden(config) {
            Some(other) => Err(Failure::new(format!(
                "`{other}` and `{}` exclude each other",
                match config.schedule {
                    _ if config.capture.is_some() || self.range.is_some() => "capture-range",
                    Some(timetable) if timetable.paired => "overhead = paired",
                    _ => "schedule",
                }
            ))
            .cause("each of them decides when recording is on")
            .hint(format!("use only one; no --{other}"))),
            None => Ok(()),
        }
    }

    /// Returns the name of another setting that also starts or stops recording, if one is set.
    fn overridden(&self, config: &Config) -> Option<&'static str> {
        match config {
            Config { schedule: None, capture: None, .. } => None,
            Config { paused: true, .. } => Some("paused"),
            Config { delay: Some(delay), .. } if !delay.is_zero() => Some("delay"),
            _ => None,
        }
    }

    fn timetable(&self) -> Result<Timetable, Failure> {
        let of = |name| self.part(name).unwrap_or(0);
        let failure = |what: &str| Failure::new(format!("the schedule {what}"));
        match self.part("active") {
            Some(1..) => {}
            Some(_) => {
                return Err(failure("records nothing")
                    .cause("active=0: no step is recorded")
                    .hint(format!("--schedule {EXAMPLE}")));
            }
            None => {
                return Err(failure("has no `active`")
                    .cause("active is how many steps of a cycle are recorded")
                    .hint(format!("--schedule {EXAMPLE}")));
            }
        }
        Ok(Timetable {
            wait: of("wait"),
            warmup: of("warmup"),
            active: of("active"),
            repeat: of("repeat"),
            skip_first: of("skip-first"),
            skip_first_wait: of("skip-first-wait") != 0,
            unit: self.unit.unwrap_or_default(),
            paired: false,
        })
    }
}

/// Parses the value of `--capture-range`.
pub fn range(given: &GivenValue) -> Result<Range, Failure> {
    const WHAT: &str = "the values are cudaProfilerApi, nvtx:NAME, range:NAME and step:A-B";
    let text = given.text()?;
    if text.eq_ignore_ascii_case("cudaProfilerApi") {
        return Ok(Range::Of(CaptureRange::CudaProfiler));
    }
    let range = match text.split_once(':') {
        Some((_, "")) => return Err(given.refuse("the range has no name", "nvtx:NAME")),
        Some(("nvtx", name)) => CaptureRange::Nvtx(name.to_owned()),
        Some(("range", name)) => CaptureRange::Range(name.to_owned()),
        Some(("step", steps)) => return self::steps(steps, given),
        _ => return Err(given.refuse(WHAT, "nvtx:NAME")),
    };
    let capture = Capture { range: range.clone(), end: CaptureEnd::Stop };
    match capture.words() {
        Some(_) => Ok(Range::Of(range)),
        None => Err(given.refuse("the name has more than 120 bytes", "nvtx:NAME")),
    }
}

fn steps(text: &str, given: &GivenValue) -> Result<Range, Failure> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().ok();
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last && last < u32::MAX => {
            Ok(Range::Steps(first, last))
        }
        (Some(_), Some(_)) => Err(given.refuse("the last step comes before the first", "step:4-6")),
        _ => {
            Err(given.refuse("steps are whole numbers from 0, the first and the last", "step:4-6"))
        }
    }
}

/// Formats a range as a value of `--capture-range`.
pub fn range_text(range: &Range) -> String {
    match range {
        Range::Of(CaptureRange::CudaProfiler) => "cudaProfilerApi".to_owned(),
        Range::Of(CaptureRange::Nvtx(name)) => format!("nvtx:{name}"),
        Range::Of(CaptureRange::Range(name)) => format!("range:{name}"),
        Range::Steps(first, last) => format!("step:{first}-{last}"),
    }
}

/// Parses the name of a unit.
pub fn unit(given: &GivenValue) -> Result<ScheduleUnit, Failure> {
    values::one_of(given, &UNITS)
}
