//! Stores what the other client wants from CUPTI: its callbacks, kinds, calls and attributes. There
//! is one client at a time, as in CUPTI itself. A later client's callbacks replace those of an
//! earlier one.

use super::guarded::Guarded;
use tprof_cupti_sys::*;
use tprof_wire::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// The client's function that lends a buffer.
pub type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// The client's function that gets a buffer back.
pub type Complete = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// Both functions of the client, stored together, since a buffer must go back to the client that
/// lent it.
static CALLBACKS: Guarded<Option<(Request, Complete)>> = Guarded::new(None);

/// Stores a client's functions. Returns the ones that they replace.
pub fn register(request: Request, complete: Complete) -> Option<(Request, Complete)> {
    CALLBACKS.with(|callbacks| callbacks.replace((request, complete)))
}

/// The client's functions, if there is one.
pub fn callbacks() -> Option<(Request, Complete)> {
    CALLBACKS.with(|callbacks| *callbacks)
}

/// Maximum number of kinds; CUPTI has 60.
const KINDS: usize = 64;
/// A period in which the client wants records of a kind, in ns of CUPTI's clock and in turns
/// ([`turn`]).
struct Period {
    from_ns: AtomicU64,
    until_ns: AtomicU64,
    from_turn: AtomicU32,
    until_turn: AtomicU32,
}

impl Period {
    const fn none() -> Period {
        Period {
            from_ns: AtomicU64::new(u64::MAX),
            until_ns: AtomicU64::new(0),
            from_turn: AtomicU32::new(u32::MAX),
            until_turn: AtomicU32::new(0),
        }
    }

    fn copy(&self, from: &Period) {
        self.from_ns.store(from.from_ns.load(Relaxed), Relaxed);
        self.until_ns.store(from.until_ns.load(Relaxed), Relaxed);
        self.from_turn.store(from.from_turn.load(Relaxed), Relaxed);
        self.until_turn.store(from.until_turn.load(Relaxed), Relaxed);
    }
}

/// The last period of each kind. [`BEFORE`] has the period before that, whose records may still
/// arrive late.
static LAST: [Period; KINDS] = [const { Period::none() }; KINDS];
static BEFORE: [Period; KINDS] = [const { Period::none() }; KINDS];
/// Bit set of the kinds that the client has ever enabled.
static EVER: AtomicU64 = AtomicU64::new(0);
/// Number of times that a period of any kind began or ended.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Number of times so far that a period of any kind began or ended. It dates events that have no
/// time.
pub fn turn() -> u32 {
    TURN.load(Acquire)
}

/// Whether the client ever wanted records of a kind.
pub fn ever(kind: CUpti_ActivityKind) -> bool {
    kind < KINDS as u32 && EVER.load(Relaxed) >> kind & 1 != 0
}

/// Whether the client ever wanted any kind.
pub fn any_ever() -> bool {
    EVER.load(Relaxed) != 0
}

/// Whether the client wants records of a kind now.
pub fn is_on(kind: CUpti_ActivityKind) -> bool {
    LAST.get(kind as usize).is_some_and(|last| last.until_ns.load(Relaxed) == u64::MAX)
}

/// Whether the client wants records of any kind now.
pub fn is_any_on() -> bool {
    (0..KINDS as u32).any(is_on)
}

/// Called when the client enables a kind at time `now_ns`.
pub fn begin(kind: CUpti_ActivityKind, now_ns: u64) {
    let (Some(last), Some(before)) = (LAST.get(kind as usize), BEFORE.get(kind as usize)) else {
        return;
    };
    if is_on(kind) {
        return;
    }
    before.copy(last);
    if kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION {
        CALL_AFTER.store(u32::MAX, Relaxed);
    }
    last.from_turn.store(TURN.fetch_add(1, AcqRel) + 1, Relaxed);
    last.until_turn.store(u32::MAX, Relaxed);
    last.from_ns.store(now_ns, Relaxed);
    last.until_ns.store(u64::MAX, Release);
    EVER.fetch_or(1 << kind, Release);
}

/// Called when the client disables a kind at time `now_ns`.
pub fn end(kind: CUpti_ActivityKind, now_ns: u64) {
    if let Some(last) = LAST.get(kind as usize).filter(|_| is_on(kind)) {
        last.until_turn.store(TURN.fetch_add(1, AcqRel) + 1, Relaxed);
        last.until_ns.store(now_ns, Release);
    }
}

/// Whether the client wanted a record of a kind whose work began at this time.
pub fn covers_time(kind: CUpti_ActivityKind, start_ns: u64) -> bool {
    let within =
        |s: &Period| (s.from_ns.load(Relaxed)..=s.until_ns.load(Relaxed)).contains(&start_ns);
    [&LAST, &BEFORE].iter().any(|list| list.get(kind as usize).is_some_and(within))
}

/// Whether the client wanted records of a kind at that turn or later.
pub fn covers_turn(kind: CUpti_ActivityKind, since: u32) -> bool {
    let within = |s: &Period| s.until_turn.load(Relaxed) > since;
    [&LAST, &BEFORE].iter().any(|list| list.get(kind as usize).is_some_and(within))
}

/// The records of external ids have no times, but correlation ids, which count up. These are two
/// correlation ids around the last period in which the client wanted external ids: that of the last
/// call before the period, and that of the first call after it.
static CALL_BEFORE: AtomicU32 = AtomicU32::new(0);
static CALL_AFTER: AtomicU32 = AtomicU32::new(u32::MAX);

/// Notes a call's correlation id and start time, which show the period of an external id.
pub fn place_call(correlation: u32, start_ns: u64) {
    let Some(last) = LAST.get(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION as usize) else { return };
    if start_ns < last.from_ns.load(Relaxed) {
        CALL_BEFORE.fetch_max(correlation, Relaxed);
    } else if start_ns > last.until_ns.load(Relaxed) {
        CALL_AFTER.fetch_min(correlation, Relaxed);
    }
}

/// Whether the client wanted the external ids of a call.
pub fn covers_call(correlation: u32) -> bool {
    (CALL_BEFORE.load(Relaxed) + 1..CALL_AFTER.load(Relaxed)).contains(&correlation)
}

/// Forgets the client, as CUPTI does when it is detached.
pub fn forget(now_ns: u64) {
    (0..KINDS as u32).for_each(|kind| end(kind, now_ns));
    IS_PERIODIC.store(false, Relaxed);
    CALLBACKS.with(|callbacks| *callbacks = None);
}

/// Number of 64-bit words with one bit for each call of a domain. [`CALLS`] has the calls that the
/// client wants, of the runtime and of the driver.
const WORDS: usize = 32;
static CALLS: [[AtomicU64; WORDS]; 2] = [const { [const { AtomicU64::new(!0) }; WORDS] }; 2];

fn word(driver: bool, call: u32) -> Option<&'static AtomicU64> {
    CALLS.get(usize::from(driver))?.get(call as usize / 64)
}

/// Called when the client wants all calls of a domain, or none.
pub fn choose_all(driver: bool, on: bool) {
    for word in CALLS.get(usize::from(driver)).into_iter().flatten() {
        word.store(if on { !0 } else { 0 }, Relaxed);
    }
}

/// Called when the client starts or stops wanting the records of a call.
pub fn choose(driver: bool, call: u32, on: bool) {
    if let Some(word) = word(driver, call) {
        let bit = 1 << (call % 64);
        if on {
            word.fetch_or(bit, Relaxed)
        } else {
            word.fetch_and(!bit, Relaxed)
        };
    }
}

/// Whether the client wants a call's records.
pub fn is_chosen(driver: bool, call: u32) -> bool {
    word(driver, call).is_none_or(|word| word.load(Relaxed) >> (call % 64) & 1 != 0)
}

/// Attributes that would change the agent's buffers as well, so that they are stored and not passed
/// on.
const ATTRIBUTES: [CUpti_ActivityAttribute; 2] = [
    CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER,
    CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER,
];
/// The values that the client set for [`ATTRIBUTES`], plus 1; 0 if it has not set one.
static KEPT: [AtomicU32; ATTRIBUTES.len()] = [const { AtomicU32::new(0) }; ATTRIBUTES.len()];

/// Where the value of an attribute is stored, if it is one of `ATTRIBUTES`.
pub fn attribute(attribute: CUpti_ActivityAttribute) -> Option<&'static AtomicU32> {
    KEPT.get(ATTRIBUTES.iter().position(|known| *known == attribute)?)
}

/// Whether the client made CUPTI flush at regular intervals.
pub static IS_PERIODIC: AtomicBool = AtomicBool::new(false);
/// The kind of thread ids that the client wants, plus 1; 0 before it chose one.
pub static THREAD_IDS: AtomicU32 = AtomicU32::new(0);
/// Number of records that did not fit into the client's buffers since the client last asked for it.
pub static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Number of dropped records that CUPTI has reported to the client but not to the agent yet.
pub static DROPPED_OURS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_last_two_periods_are_wanted() {
        const KIND: u32 = 40;
        assert!(!covers_time(KIND, 5) && !covers_turn(KIND, 0));
        for (from, until) in [(10, 20), (30, 40), (50, u64::MAX)] {
            begin(KIND, from);
            begin(KIND, from + 1);
            if until < u64::MAX {
                end(KIND, until);
                end(KIND, until + 1);
            }
        }
        let wanted: Vec<u64> = (0..60).step_by(5).filter(|t| covers_time(KIND, *t)).collect();
        assert_eq!(wanted, [30, 35, 40, 50, 55]);
        assert!(is_on(KIND) && ever(KIND) && !ever(KIND + 1) && covers_turn(KIND, turn()));
        end(KIND, 60);
        assert!(covers_turn(KIND, turn() - 1) && !covers_turn(KIND, turn()));
    }

    #[test]
    fn calls_are_chosen_one_by_one() {
        assert!(is_chosen(true, 7) && is_chosen(true, 1 << 20));
        choose_all(true, false);
        choose(true, 300, true);
        assert!(is_chosen(true, 300) && !is_chosen(true, 301) && is_chosen(false, 301));
        choose(true, 300, false);
        assert!(!is_chosen(true, 300));
        choose_all(true, true);
    }
}
