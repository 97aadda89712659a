//! Decides which steps of a job are recorded, by a step's number and with the rules of
//! `torch.profiler.schedule`.

use core::ops::RangeInclusive;

/// The action for one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The step is not recorded.
    Wait,
    /// The step is not recorded, but the next one is.
    WarmUp,
    /// The step is recorded.
    Record,
    /// The step is recorded, and is the last one of its cycle.
    RecordLast,
}

/// The sources from which steps are counted, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Source {
    /// The program itself, through `tprof_abi`.
    Program = 1,
    /// The program itself, through NVTX ranges `step N`.
    Nvtx = 2,
    /// torch.profiler, through ranges `ProfilerStep#N`.
    Profiler = 3,
    /// An optimizer, through ranges `Optimizer.step#CLASS.step`.
    Optimizer = 4,
    /// A data loader, through ranges `enumerate(DataLoader)#…`.
    Loader = 5,
    /// The program itself, through ranges `epoch N`, if the schedule counts epochs.
    Epoch = 16,
}

impl Source {
    /// The bits of [`crate::region::RegionHeader::step_source`] that contain the source. The others
    /// distinguish several makers of steps in one source.
    pub const KIND: u32 = 0xff;

    /// Whether a process with this `step_source` notices its steps even while recording is off in
    /// the session. The others are ranges of PyTorch, which are noticed by a callback.
    pub fn always_counts(step_source: u32) -> bool {
        let kind = step_source & Source::KIND;
        kind == Source::Program as u32 || kind == Source::Nvtx as u32
    }
}

/// A schedule. Its parts are numbers of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Number of steps at the beginning of each cycle that are not recorded.
    pub wait: u32,
    /// Number of steps after those of `wait` that are not recorded either, but prepare for
    /// recording.
    pub warmup: u32,
    /// Number of steps after those of `warmup` that are recorded; at least one.
    pub active: u32,
    /// Number of cycles; 0 if cycles go on until the job ends.
    pub repeat: u32,
    /// Number of steps before the first cycle, which are not recorded.
    pub skip_first: u32,
    /// Whether the first cycle has no wait.
    pub skip_first_wait: bool,
    /// Whether the schedule counts epochs of the program instead of steps.
    pub epochs: bool,
    /// Whether the beginning of each step is recorded, even if the step itself is not
    /// (`--overhead paired`, and while `tprof ctl start --steps` waits for steps).
    pub boundaries: bool,
}

/// Number of words that [`Schedule::pack`] returns.
pub const WORDS: usize = 3;
/// Bit in the last word of every schedule, so that zeroes mean that there is no schedule.
const PRESENT: u64 = 1 << 63;
const SKIP_FIRST_WAIT: u64 = 1 << 32;
const EPOCHS: u64 = 1 << 33;
const BOUNDARIES: u64 = 1 << 34;

impl Schedule {
    /// A schedule with which steps are counted, but never switch recording. While recording is off
    /// in the session, the ranges of PyTorch are counted only if [`crate::region::off::STEPS`] is
    /// set, because any callback costs a step of PyTorch 2 %.
    pub const COUNT: Schedule = Schedule {
        wait: 0,
        warmup: 0,
        active: 0,
        repeat: 1,
        skip_first: u32::MAX,
        skip_first_wait: false,
        epochs: false,
        boundaries: false,
    };

    fn length(&self) -> u64 {
        u64::from(self.wait) + u64::from(self.warmup) + u64::from(self.active)
    }

    /// The number of a step, counted from the beginning of the first cycle; `None` before that.
    fn place(&self, step: u64) -> Option<u64> {
        let place = step.checked_sub(u64::from(self.skip_first))?;
        Some(if self.skip_first_wait { place + u64::from(self.wait) } else { place })
    }

    /// The cycle of a step, from 0; `None` before the first cycle and after the last.
    pub fn cycle(&self, step: u64) -> Option<u64> {
        let cycle = self.place(step)?.checked_div(self.length())?;
        (self.repeat == 0 || cycle < u64::from(self.repeat)).then_some(cycle)
    }

    /// Returns the action in a step; steps are counted from 0.
    pub fn action(&self, step: u64) -> Action {
        let Some(place) = self.place(step).filter(|_| self.cycle(step).is_some()) else {
            return Action::Wait;
        };
        let within = place.checked_rem(self.length()).unwrap_or(0);
        let warm_up = u64::from(self.wait);
        let active = warm_up + u64::from(self.warmup);
        match within {
            _ if within < warm_up => Action::Wait,
            _ if within < active => Action::WarmUp,
            _ if within + 1 == self.length() => Action::RecordLast,
            _ => Action::Record,
        }
    }

    /// Whether a step is recorded.
    pub fn records(&self, step: u64) -> bool {
        matches!(self.action(step), Action::Record | Action::RecordLast)
    }

    /// The steps that a cycle records; `None` if the schedule doesn't have that cycle.
    pub fn steps_of(&self, cycle: u64) -> Option<RangeInclusive<u64>> {
        if self.repeat != 0 && cycle >= u64::from(self.repeat) {
            return None;
        }
        let end = u64::from(self.skip_first) + (cycle + 1) * self.length();
        let end = if self.skip_first_wait { end - u64::from(self.wait) } else { end };
        Some(end.checked_sub(u64::from(self.active))?..=end.checked_sub(1)?)
    }

    /// Doubles `wait`, `warmup` and `active` until the steps of a cycle that are not recorded last
    /// at least `least`, if one step lasts `step`.
    pub fn lasting(self, least: u64, step: u64) -> Schedule {
        let mut of = self;
        let left_out = |of: &Schedule| (u64::from(of.wait) + u64::from(of.warmup)) * step;
        while of.wait > 0 && left_out(&of) < least && of.length() < 1 << 20 {
            (of.wait, of.warmup, of.active) = (of.wait * 2, of.warmup * 2, of.active * 2);
        }
        of
    }

    /// Packs the schedule into the words of [`crate::region::RegionHeader::schedule`].
    pub fn pack(&self) -> [u64; WORDS] {
        let skips = if self.skip_first_wait { SKIP_FIRST_WAIT } else { 0 };
        let epochs = if self.epochs { EPOCHS } else { 0 };
        let boundaries = if self.boundaries { BOUNDARIES } else { 0 };
        [
            u64::from(self.wait) | u64::from(self.warmup) << 32,
            u64::from(self.active) | u64::from(self.repeat) << 32,
            u64::from(self.skip_first) | skips | epochs | boundaries | PRESENT,
        ]
    }

    /// Unpacks the words of [`Schedule::pack`]; `None` if there is no schedule.
    pub fn unpack(words: [u64; WORDS]) -> Option<Schedule> {
        let [first, second, third] = words;
        (third & PRESENT != 0).then_some(Schedule {
            wait: first as u32,
            warmup: (first >> 32) as u32,
            active: second as u32,
            repeat: (second >> 32) as u32,
            skip_first: third as u32,
            skip_first_wait: third & SKIP_FIRST_WAIT != 0,
            epochs: third & EPOCHS != 0,
            boundaries: third & BOUNDARIES != 0,
        })
    }
}

/// Whether the schedule with this last word counts epochs.
pub fn counts_epochs(third: u64) -> bool {
    third & EPOCHS != 0
}

/// The words before the number in the name of a range that is a step. Case is ignored.
const STEP_WORDS: [&[u8]; 3] = [b"step", b"iteration", b"profilerstep"];
/// The words before the number in the name of a range that is an epoch. Case is ignored.
const EPOCH_WORDS: [&[u8]; 1] = [b"epoch"];

/// Whether a range with this name is a step, such as `step 5` or `iteration#5`.
pub fn is_step(name: &[u8]) -> bool {
    is_numbered(name, &STEP_WORDS)
}

/// Whether a range with this name is an epoch, such as `epoch 5`.
pub fn is_epoch(name: &[u8]) -> bool {
    is_numbered(name, &EPOCH_WORDS)
}

/// Whether a name consists of one of the words, at least one of the characters ` #_:=`, and digits.
fn is_numbered(name: &[u8], words: &[&[u8]]) -> bool {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let Some((head, _)) = name.split_at_checked(name.len() - digits) else { return false };
    let separators = head.iter().rev().take_while(|byte| b" #_:=".contains(byte)).count();
    let Some((word, _)) = head.split_at_checked(head.len() - separators) else { return false };
    digits > 0 && separators > 0 && words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::String;

    fn schedule(parts: [u32; 5], skip_first_wait: bool) -> Schedule {
        let [wait, warmup, active, repeat, skip_first] = parts;
        let of = Schedule { wait, warmup, active, repeat, skip_first, ..Schedule::default() };
        Schedule { skip_first_wait, ..of }
    }

    /// The results of PyTorch 2.15.0: `.` NONE, `w` WARMUP, `r` RECORD, `S` RECORD_AND_SAVE.
    #[test]
    fn actions_equal_those_of_pytorchs_schedule() {
        for (parts, skip_first_wait, expected) in [
            ([1, 1, 2, 0, 0], false, ".wrS.wrS.wrS.wrS.wrS"),
            ([1, 1, 2, 1, 0], false, ".wrS................"),
            ([1, 1, 2, 2, 0], false, ".wrS.wrS............"),
            ([0, 0, 1, 0, 0], false, "SSSSSSSSSSSSSSSSSSSS"),
            ([3, 1, 3, 1, 0], false, "...wrrS............."),
            ([2, 1, 1, 2, 3], false, ".....wS..wS........."),
            ([4, 1, 1, 2, 3], true, "...wS....wS........."),
        ] {
            let schedule = schedule(parts, skip_first_wait);
            let actions = (0..20).map(|step| match schedule.action(step) {
                Action::Wait => '.',
                Action::WarmUp => 'w',
                Action::Record => 'r',
                Action::RecordLast => 'S',
            });
            assert_eq!(actions.collect::<String>(), expected, "{schedule:?}");
            assert_eq!(Schedule::unpack(schedule.pack()), Some(schedule));
            for step in (0..20).filter(|step| schedule.records(*step)) {
                let cycle = schedule.cycle(step).unwrap();
                assert!(schedule.steps_of(cycle).unwrap().contains(&step), "{schedule:?} {step}");
            }
        }
        assert_eq!(Schedule::unpack([0; WORDS]), None);
    }

    #[test]
    fn steps_that_are_not_recorded_last_long_enough() {
        let paired = Schedule { boundaries: true, ..schedule([5, 0, 15, 0, 0], true) };
        assert_eq!(Schedule::unpack(paired.pack()), Some(paired));
        assert_eq!(paired.lasting(250, 50), paired);
        let longer = paired.lasting(250, 30);
        assert_eq!((longer.wait, longer.active), (10, 30));
        assert!((0..30).all(|step| longer.records(step)) && !longer.records(30));
        assert!(paired.lasting(u64::MAX, 1).length() <= 1 << 21);
    }

    #[test]
    fn steps_of_a_cycle_are_those_that_it_records() {
        let twice = schedule([2, 1, 1, 2, 3], false);
        assert_eq!(
            [0, 1, 2].map(|cycle| twice.steps_of(cycle)),
            [Some(6..=6), Some(10..=10), None]
        );
        let plain = schedule([3, 1, 3, 1, 0], false);
        assert_eq!(plain.steps_of(0), Some(4..=6));
        assert_eq!(schedule([4, 1, 1, 2, 3], true).steps_of(0), Some(4..=4));
    }

    #[test]
    fn a_schedule_that_only_counts_records_no_step() {
        assert!((0..20).all(|step| !Schedule::COUNT.records(step)));
        assert!(!Schedule::COUNT.records(u64::from(u32::MAX) + 1));
        assert_eq!(Schedule::unpack(Schedule::COUNT.pack()), Some(Schedule::COUNT));
    }

    #[test]
    fn names_of_steps_and_epochs_have_a_word_and_a_number() {
        for name in ["step 12", "STEP#12", "iteration: 12", "ProfilerStep#12", "step__12"] {
            assert!(is_step(name.as_bytes()), "{name}");
        }
        for name in ["step", "step12", "12", " 12", "steps 12", "epoch 1", "step x", ""] {
            assert!(!is_step(name.as_bytes()), "{name}");
        }
        assert!(is_epoch(b"Epoch 3") && !is_epoch(b"epoch") && !is_epoch(b"step 3"));
    }
}
