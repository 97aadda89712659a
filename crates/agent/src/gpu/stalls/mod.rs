//! Samples the instructions of kernels with CUPTI's PC Sampling API, if the user asks for it
//! (`--gpu-stalls`): each period, every multiprocessor notes which instruction of which warp it
//! looked at, and why that warp did not issue one.
//!
//! ```text
//! devices ─ samples ─▶ CUPTI's threads ── flush thread, once a second ──▶ ring
//! ```
//!
//! Kernels run concurrently, as without sampling. So CUPTI doesn't say in which run of a kernel a
//! sample was taken, only in which function, and counts add up over time.
//!
//! Sampling has one client in a process, and uses counters of the device that other profilers use
//! too. tprof stays away if another client of CUPTI or another injected profiler is there, and ends
//! its sampling when one comes. It says so in the run.
//!
//! Only the flush thread calls the API, outside of callbacks and once a second: CUPTI copies the
//! names of functions while it answers, and a module could be unloaded meanwhile.
//!
//! CUPTI allocates the names that it returns, and leaves them to the client "until post processing"
//! ends. Other records may share them, so they are never freed.

mod answer;
mod api;
mod contexts;
mod cubins;

use super::cupti::Cupti;
use super::guarded::Guarded;
use super::loader::Loader;
use super::notes::{note, reason};
use super::places::CuptiLibrary;
use super::{texts, wants};
use answer::{Answer, Place};
use api::{MAX_REASONS, PcSampling, Reasons};
use contexts::DriverContexts;
use tprof_cupti_sys::*;
use tprof_inject::block::Thread;
use tprof_inject::{environment, loaded, ring, sys};
use tprof_wire::env;
use tprof_wire::gpu::{self, trouble};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicBool, Ordering::*};

/// Interval at which samples are read while a context is sampled.
const READ_NS: u64 = 1_000_000_000;
/// Interval at which the agent looks for a first context. What runs before it finds one isn't
/// sampled.
const LOOK_NS: u64 = 10_000_000;
/// Number of looks for a first context after which the agent looks as seldom as it reads. A program
/// may have only contexts of its own.
const LOOKS: u32 = 500;
/// Most answers that are read at once. More than 260,000 places are left to the next time.
const ANSWERS: usize = 64;
/// Most devices of a process.
const DEVICES: usize = 64;
/// Valid periods: between 2 to the power of these numbers, by CUPTI's header.
const PERIODS: core::ops::RangeInclusive<u32> = 5..=31;
/// Major compute capability of Volta, the oldest that the API supports.
const VOLTA: u32 = 7;

/// Libraries by which other profilers of the device are recognized: Nsight Compute's and Nsight
/// Systems'.
const PROFILERS: [&[u8]; 3] =
    [b"libcuda-injection.so", b"libToolsInjection64.so", b"libnvperf_target.so"];

/// What [`prepare`] found, until the flush thread takes it.
static PREPARED: Guarded<Option<PcSampling>> = Guarded::new(None);
/// Set when another client begins to use what sampling uses.
static HAS_OTHER: AtomicBool = AtomicBool::new(false);
/// Whether a context is being sampled.
static IS_SAMPLING: AtomicBool = AtomicBool::new(false);
/// Set when CUPTI was detached, so that no context is sampled any more.
static IS_DETACHED: AtomicBool = AtomicBool::new(false);

const OTHER_CLIENT: &[u8] =
    b"another client of CUPTI is in the process (such as torch.profiler), and sampling has one";

/// The period that the user asks for, as a power of 2; `None` without samples.
fn period() -> Option<u32> {
    let text = environment::variable(env::PC_SAMPLING)?;
    let number = text.iter().try_fold(0u32, |number, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit)
    });
    number.filter(|period| PERIODS.contains(period))
}

/// Looks the API up, and makes CUPTI number the code of modules, if the user asks for samples.
/// Called once, while the driver starts.
pub fn prepare(thread: &Thread, cupti: &Cupti, loader: &Loader, library: &CuptiLibrary) {
    if period().is_none() {
        return;
    }
    let refuse = |why: &[u8], file: &[u8]| {
        note(thread, trouble::NO_STALLS, 1, reason(why, file).as_c().to_bytes());
    };
    let named = environment::variable(env::NEXT_INJECTION).filter(|text| !text.is_empty());
    if let Some(named) = named {
        return refuse(b"the job injects a library of its own into CUDA", named);
    }
    if let Some(other) = PROFILERS.iter().find_map(|name| loaded::named(name)) {
        return refuse(b"another profiler is in the process", other.path.to_bytes());
    }
    if cupti.has_clients_apart || has_other_client() {
        return refuse(OTHER_CLIENT, b"");
    }
    let Some(api) = PcSampling::of(loader, library) else {
        return refuse(b"this libcupti has no PC sampling", library.path.as_c().to_bytes());
    };
    let result = api.number_cubins(Some(cubins::number));
    if result != CUPTI_SUCCESS {
        // The samples have no lines then, and are all there.
        super::notes::refused(thread, cupti, b"lines of GPU code", result);
    }
    PREPARED.with(|prepared| *prepared = Some(api));
}

fn has_other_client() -> bool {
    HAS_OTHER.load(Acquire) || wants::any_ever() || wants::callbacks().is_some()
}

/// Called when another client begins to sample or to count on devices, before CUPTI gets its call.
/// Returns whether a context is being sampled, so that the client must wait for the flush thread.
pub fn has_other() -> bool {
    HAS_OTHER.store(true, Release);
    IS_SAMPLING.load(Acquire)
}

/// Called when CUPTI was detached.
pub fn forget() {
    IS_DETACHED.store(true, Release);
}

/// Whether a device is sampled.
enum State {
    /// Its context isn't sampled, and may be.
    Idle,
    /// Its context is sampled. CUPTI has the answer until that ends.
    Sampled { context: CUcontext, number: u32, kept: Answer },
    /// It can't be sampled.
    Refused,
}

/// The flush thread's state of sampling.
pub struct Stalls {
    api: PcSampling,
    cupti: Cupti,
    driver: DriverContexts,
    period: u32,
    answer: Answer,
    devices: [State; DEVICES],
    /// Text ids of the reasons, by CUPTI's numbers. Devices of one process have the same.
    reasons: [(u32, u32); MAX_REASONS],
    /// Time of the next reading (CLOCK_MONOTONIC).
    due_ns: u64,
    /// Number of looks for a context so far without one.
    looks: u32,
    is_over: bool,
}

impl Stalls {
    /// Takes what [`prepare`] found; `None` if nothing is to be sampled.
    pub fn wanted(thread: &Thread, cupti: Cupti) -> Option<Stalls> {
        let api = PREPARED.with(Option::take)?;
        let made = || -> Option<Stalls> {
            Some(Stalls {
                api,
                cupti,
                driver: DriverContexts::find()?,
                period: period()?,
                answer: Answer::new()?,
                devices: [const { State::Idle }; DEVICES],
                reasons: [(0, 0); MAX_REASONS],
                due_ns: 0,
                looks: 0,
                is_over: false,
            })
        };
        let stalls = made();
        if stalls.is_none() {
            let why = b"the driver lacks a function, or there is no memory for samples";
            note(thread, trouble::NO_STALLS, 1, why);
        }
        stalls
    }

    /// Longest time to sleep until the next reading, ns.
    pub fn most_ns(&self) -> u64 {
        match self.is_over {
            true => u64::MAX,
            false => self.due_ns.saturating_sub(sys::monotonic_ns()).max(1),
        }
    }

    /// Reads samples, begins to sample contexts that are new, and ends all sampling if `is_on` says
    /// that recording is off, if `is_ending` says that a context or the process is about to end, or
    /// if another client is there.
    pub fn round(&mut self, thread: &Thread, is_on: bool, is_ending: bool) {
        if IS_DETACHED.swap(false, AcqRel) {
            self.forget();
        }
        if self.is_over {
            return;
        }
        if has_other_client() {
            self.end(thread);
            self.is_over = true;
            return note(thread, trouble::STALLS_END, 1, OTHER_CLIENT);
        }
        let now_ns = sys::monotonic_ns();
        if is_ending || !is_on {
            self.end(thread);
            self.due_ns = now_ns + READ_NS;
            return;
        }
        if now_ns < self.due_ns {
            return;
        }
        for device in 0..self.driver.devices().min(DEVICES as u32) {
            self.look(thread, device);
            self.read(thread, device, false);
        }
        let is_sampling = self.is_sampling();
        IS_SAMPLING.store(is_sampling, Release);
        self.looks = if is_sampling { 0 } else { self.looks.saturating_add(1) };
        let is_seldom = is_sampling || self.looks > LOOKS;
        self.due_ns = now_ns + if is_seldom { READ_NS } else { LOOK_NS };
    }

    fn is_sampling(&self) -> bool {
        self.devices.iter().any(|state| matches!(state, State::Sampled { .. }))
    }

    /// Begins to sample a device whose context is new.
    fn look(&mut self, thread: &Thread, device: u32) {
        let Some(state) = self.devices.get(device as usize) else { return };
        match state {
            State::Refused => return,
            // A context that has ended without a call that the hooks see. CUPTI has ended its
            // sampling, too.
            State::Sampled { .. } if !self.driver.is_active(device) => self.drop_device(device),
            State::Sampled { .. } => return,
            State::Idle => {}
        }
        let Some(context) = self.driver.primary(device) else { return };
        match self.driver.capability(device) {
            Some((major, minor)) if major < VOLTA => {
                self.refuse(thread, device, &old_device(major, minor));
            }
            _ => self.begin(thread, device, context),
        }
    }

    fn begin(&mut self, thread: &Thread, device: u32, context: CUcontext) {
        let Some(kept) = Answer::new() else {
            return self.refuse(thread, device, b"there is no memory for samples");
        };
        let mut result = self.api.enable(context);
        let mut what: &[u8] = b"cuptiPCSamplingEnable";
        let is_enabled = result == CUPTI_SUCCESS;
        if is_enabled {
            let mut reasons = Reasons::none();
            result = self.api.reasons(context, &mut reasons);
            what = b"cuptiPCSamplingGetStallReasons";
            if result == CUPTI_SUCCESS {
                for (known, (number, name)) in self.reasons.iter_mut().zip(reasons.each()) {
                    *known = (number, texts::id(thread, name));
                }
                result = self.api.configure(context, self.period, &mut reasons, kept.data());
                what = b"cuptiPCSamplingSetConfigurationAttribute";
            }
        }
        let mut number = 0;
        if result == CUPTI_SUCCESS {
            if let Some(context_id) = self.cupti.context_id {
                // SAFETY: CUPTI's function has this type, and writes one number to the local; the
                // context is the device's primary one.
                unsafe { context_id(context, &raw mut number) };
            }
            if let Some(state) = self.devices.get_mut(device as usize) {
                *state = State::Sampled { context, number, kept };
            }
            // The totals of no samples tell from when on the context is sampled.
            return self.totals(thread, device, number, &gpu::PcTotals::default());
        }
        if is_enabled {
            self.api.disable(context);
        }
        // SAFETY: CUPTI has refused the answer, or its sampling has ended.
        unsafe { kept.unmap() };
        let why = reason(what, self.cupti.result_name(result));
        match result {
            CUPTI_ERROR_INSUFFICIENT_PRIVILEGES => {
                self.is_over = true;
                let why = b"the driver lets only administrators read a GPU's performance counters \
                            (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)";
                note(thread, trouble::NO_STALLS, u64::from(device), why);
            }
            _ => self.refuse(thread, device, why.as_c().to_bytes()),
        }
    }

    fn refuse(&mut self, thread: &Thread, device: u32, why: &[u8]) {
        note(thread, trouble::NO_STALLS, u64::from(device), why);
        if let Some(state) = self.devices.get_mut(device as usize) {
            *state = State::Refused;
        }
    }

    /// Reads what CUPTI has of a device.
    fn read(&mut self, thread: &Thread, device: u32, is_last: bool) {
        let Some(State::Sampled { context, number, kept }) = self.devices.get(device as usize)
        else {
            return;
        };
        let (context, number) = (*context, *number);
        for turn in 1..=ANSWERS {
            self.answer.reset();
            let result = self.api.data(context, self.answer.data());
            if !matches!(result, CUPTI_SUCCESS | CUPTI_ERROR_OUT_OF_MEMORY) {
                let why = reason(b"cuptiPCSamplingGetData", self.cupti.result_name(result));
                note(thread, trouble::STALLS_END, u64::from(device), why.as_c().to_bytes());
                return self.drop_refused(device);
            }
            self.write(thread, device, number, &self.answer);
            let rest = self.answer.head().remainingNumPcs.max(kept.head().totalNumPcs);
            if rest == 0 || result != CUPTI_SUCCESS {
                return;
            }
            if turn == ANSWERS && is_last {
                note(thread, trouble::STALLS_UNREAD, rest as u64, b"");
            }
        }
    }

    /// Reads the last samples of all contexts, and ends their sampling.
    fn end(&mut self, thread: &Thread) {
        for device in 0..DEVICES as u32 {
            self.read(thread, device, true);
            let Some(state) = self.devices.get_mut(device as usize) else { continue };
            if !matches!(state, State::Sampled { .. }) {
                continue;
            }
            let before = core::mem::replace(state, State::Idle);
            if let State::Sampled { context, number, kept } = before {
                kept.reset();
                let result = self.api.disable(context);
                if result == CUPTI_SUCCESS {
                    self.write(thread, device, number, &kept);
                    // SAFETY: sampling has ended, and with it CUPTI's use of the answer.
                    unsafe { kept.unmap() };
                }
            }
        }
        IS_SAMPLING.store(false, Release);
    }

    /// Forgets all contexts, because CUPTI was detached and samples none.
    fn forget(&mut self) {
        for device in 0..DEVICES as u32 {
            self.drop_device(device);
        }
        IS_SAMPLING.store(false, Release);
    }

    /// Forgets a device's context. CUPTI may still write to its answer, so that stays mapped.
    fn drop_device(&mut self, device: u32) {
        if let Some(state @ State::Sampled { .. }) = self.devices.get_mut(device as usize) {
            *state = State::Idle;
        }
    }

    fn drop_refused(&mut self, device: u32) {
        if let Some(state) = self.devices.get_mut(device as usize) {
            *state = State::Refused;
        }
    }

    /// Writes an answer to the ring.
    fn write(&self, thread: &Thread, device: u32, context: u32, answer: &Answer) {
        let head = answer.head();
        let mut recorded = 0u64;
        // SAFETY: CUPTI has returned the answer and doesn't change it before the next call; names
        // are never freed.
        for place in unsafe { answer.places() } {
            recorded += self.write_place(thread, device, &place);
        }
        let is_empty = recorded == 0 && head.totalSamples == 0 && head.hardwareBufferFull == 0;
        if !is_empty {
            let totals = gpu::PcTotals {
                total: head.totalSamples,
                dropped: head.droppedSamples,
                other: head.nonUsrKernelsTotalSamples,
                recorded,
                full: u32::from(head.hardwareBufferFull != 0),
                ..gpu::PcTotals::default()
            };
            self.totals(thread, device, context, &totals);
        }
    }

    fn totals(&self, thread: &Thread, device: u32, context: u32, totals: &gpu::PcTotals) {
        let totals = gpu::PcTotals { device, context, period: self.period, ..*totals };
        ring::ext(thread, ExtKind::PcTotals, 0, thread.clock(), &totals.pack());
    }

    /// Writes the samples of one place. Returns their number.
    fn write_place(&self, thread: &Thread, device: u32, place: &Place<'_>) -> u64 {
        const HEAD: usize = gpu::PcSamples::WORDS;
        let head = gpu::PcSamples {
            cubin: place.cubin,
            offset: place.offset,
            device,
            function: texts::id(thread, place.function),
        };
        let mut words = [0u64; HEAD + MAX_REASONS];
        let (first, rest) = words.split_at_mut(HEAD);
        first.copy_from_slice(&head.pack());
        let (mut used, mut samples) = (0, 0);
        let found = place.reasons.iter().filter(|reason| reason.samples > 0);
        for (word, reason) in rest.iter_mut().zip(found) {
            let number = reason.pcSamplingStallReasonIndex;
            let name = self.reasons.iter().find(|known| known.0 == number && known.1 != 0);
            *word = gpu::pack_reason(name.map_or(0, |name| name.1), reason.samples);
            used += 1;
            samples += u64::from(reason.samples);
        }
        if let Some(payload) = words.get(..HEAD + used).filter(|_| used > 0) {
            let argument = used as u32;
            ring::ext(thread, ExtKind::PcSamples, argument, thread.clock(), payload);
        }
        samples
    }
}

/// Says that a device is too old.
fn old_device(major: u32, minor: u32) -> [u8; OLD.len()] {
    let mut text = *OLD;
    let digit = |value: u32| b'0' + value.min(9) as u8;
    let digits = [digit(major), digit(minor)];
    let places = text.iter_mut().filter(|byte| **byte == b'#');
    places.zip(digits).for_each(|(place, digit)| *place = digit);
    text
}
const OLD: &[u8; 73] = b"its compute capability is #.#, and PC sampling needs 7.0 (Volta) or newer";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_of_an_old_device_is_named() {
        let text = old_device(6, 1);
        assert!(text.starts_with(b"its compute capability is 6.1, and"));
    }
}
