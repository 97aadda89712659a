//! Injects faults. `FAKE_CUPTI_FAULTS` chooses them, with words separated by commas:
//!
//! | word | what happens |
//! |---|---|
//! | `drop=N` | each Nth kernel's record finds no room, and is counted as dropped |
//! | `zero=N` | each Nth kernel's record has no times |
//! | `unknown=N` | behind each Nth record comes one of an unknown kind |
//! | `nested=N` | behind each Nth record comes one of a kernel that a kernel launched |
//! | `broken=N` | behind each Nth record comes one of no kind, and the buffer cannot be read on |
//! | `overhead=N` | behind each Nth kernel's record comes one of time that CUPTI itself took |
//! | `everything` | arrays, other processes' memory, registered memory and handles have records, too; no documentation says whether they have |
//! | `hoststart` | graphs begin with a node of the host |
//! | `devices` | devices have no records, as if they were made before a client enabled the kind |
//! | `contexts` | records of contexts come last of all |
//! | `late` | buffers come one flush later, the last one first |
//! | `hold=N` | a buffer has N records, and comes back only by a forced flush |
//! | `orphans` | buffers of a client that is replaced go to the next one |
//! | `lost` | buffers of a client that is replaced are never returned |
//! | `reset` | records in buffers that are not returned when a context ends are lost |
//! | `domains` | switching a callback domain off disables all kinds, as before 12.6 Update 1 |
//! | `unended` | a forced flush returns buffers whose last record is of work that has not ended |
//! | `places=N` | an answer of the PC Sampling API has N places |
//! | `lose=N` | N samples of each sampled run are dropped |
//! | `foreign=N` | each sampled run adds N samples of kernels that aren't the program's |
//! | `full` | once, a device's buffer for samples was full |
//! | `rest` | samples come only when sampling ends |
//! | `pmabort=N` | the Nth decoding of samples aborts its process |
//! | `pmfull=N` | each Nth decoding of samples finds the device's buffer full |
//! | `subscriber` | another client holds the subscription |
//! | `refuse=CALL:RESULT` | this call fails with this result (`cuptiActivityEnable/10`: for kind 10 only) |

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use tprof_cupti_sys::bindings::{CUPTI_SUCCESS, CUptiResult};
use tprof_fake_cuda::engine;

/// Number of records that found no room since the last query.
pub static DROPPED: AtomicUsize = AtomicUsize::new(0);

fn words() -> &'static [(String, String)] {
    static WORDS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let text = std::env::var("FAKE_CUPTI_FAULTS").unwrap_or_default();
        let words = text.split(',').filter(|word| !word.is_empty());
        let pair = |word: &str| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        };
        words.map(pair).collect()
    })
}

/// Whether a fault is switched on.
pub fn is_set(name: &str) -> bool {
    words().iter().any(|(of, _)| of == name)
}

/// Whether it is the turn of a fault, which comes with each Nth call.
pub fn turn(name: &str, count: &AtomicU64) -> bool {
    let Some((_, every)) = words().iter().find(|(of, _)| of == name) else { return false };
    let every = every.parse().unwrap_or(1).max(1);
    (count.fetch_add(1, Relaxed) + 1).is_multiple_of(every)
}

/// Returns the number that a fault was switched on with.
pub fn value(name: &str) -> Option<u64> {
    words().iter().find(|(of, _)| of == name)?.1.parse().ok()
}

/// Returns the result with which a call must fail, or success.
pub fn refusal(call: &str) -> CUptiResult {
    let refused = words().iter().filter(|(name, _)| name == "refuse").find_map(|(_, what)| {
        let (of, result) = what.rsplit_once(':')?;
        (of == call).then(|| result.parse().ok()).flatten()
    });
    refused.unwrap_or(CUPTI_SUCCESS)
}

/// Logs that a record was withheld or spoiled.
pub fn log(what: &str, correlation: u32, graph_node: u64) {
    let line = format!(
        "{{\"what\":\"fault\",\"fault\":\"{what}\",\"correlation\":{correlation},\"node\":{graph_node}}}"
    );
    (engine().log)(line.as_ptr(), line.len());
}
