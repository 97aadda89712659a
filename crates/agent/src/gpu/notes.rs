//! Writes notes of the CUPTI agent as records: what it could not do or record, for the run's
//! report.

use super::cupti::Cupti;
use super::texts;
use tprof_cupti_sys::CUptiResult;
use tprof_inject::block::Thread;
use tprof_inject::path::Path;
use tprof_inject::ring;
use tprof_wire::gpu::trouble;
use tprof_wire::record::ExtKind;

/// Joins a reason and the path of the file that it is about, if any. Leaves out the path if the
/// text would be longer than a path may be.
pub fn reason(why: &[u8], file: &[u8]) -> Path {
    let parts: &[&[u8]] = if file.is_empty() { &[why] } else { &[why, b": ", file] };
    Path::of(parts).or_else(|| Path::of(&[why])).unwrap_or_default()
}

/// Reports that CUPTI can't be used, and why; `file` may be empty. Always returns false, so that a
/// caller that returns whether CUPTI is used can return the result.
pub fn without(thread: &Thread, why: &[u8], file: &[u8]) -> bool {
    note(thread, trouble::NO_CUPTI, 1, reason(why, file).as_c().to_bytes());
    false
}

/// Writes a note: its kind, one of [`trouble`], with a count and a reason. What is counted follows
/// from the kind.
pub fn note(thread: &Thread, what: u32, count: u64, why: &[u8]) {
    let text = texts::id(thread, why);
    let clock = thread.clock();
    ring::ext(thread, ExtKind::AgentNote, what, clock, &[count, u64::from(text)]);
}

/// Reports that CUPTI refused a call, named `what`, with its result as the reason.
pub fn refused(thread: &Thread, cupti: &Cupti, what: &[u8], result: CUptiResult) {
    if let Some(text) = Path::of(&[what, b": ", cupti.result_name(result)]) {
        note(thread, trouble::REFUSED, u64::from(result), text.as_c().to_bytes());
    }
}
