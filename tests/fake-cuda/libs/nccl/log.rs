//! Logs as NCCL does with `NCCL_DEBUG=INFO`: the lines of a communicator that connects while it is
//! made. The file is the one that `NCCL_DEBUG_FILE` names, or the output if it can't be opened.

use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// Logs that this communicator was made: a ring, whose ranks send within the host and receive over
/// the network.
pub fn made(address: *const c_void, hash: u64, rank: u32, ranks: u32) {
    static LOG: OnceLock<Option<Mutex<Box<dyn Write + Send>>>> = OnceLock::new();
    let Some(log) = LOG.get_or_init(open) else { return };
    let Ok(mut log) = log.lock() else { return };
    // SAFETY: it has no premises.
    let (pid, tid) = (std::process::id(), unsafe { libc::gettid() });
    let mut line = |text: &str| {
        let _ = writeln!(log, "{}:{pid}:{tid} [0] NCCL INFO {text}", host());
    };
    let about = format!(
        "comm {address:p} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId 9b000 commId {hash:#x}"
    );
    line(&format!("ncclCommInitRank {about} - Init START"));
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for channel in (0..super::profiler::CHANNELS).filter(|_| ranks > 1) {
        line(&format!(
            "Channel {channel:02}/0 : {previous}[0] -> {rank}[0] [receive] via NET/Socket/0"
        ));
        line(&format!("Channel {channel:02}/0 : {rank}[0] -> {next}[1] via P2P/CUMEM"));
    }
    line(&format!("ncclCommInitRank {about} - Init COMPLETE"));
}

fn open() -> Option<Mutex<Box<dyn Write + Send>>> {
    let is_enough =
        std::env::var("NCCL_DEBUG").is_ok_and(|level| level.eq_ignore_ascii_case("info"));
    is_enough.then(|| {
        let pattern = std::env::var("NCCL_DEBUG_FILE").unwrap_or_default();
        let path = pattern.replace("%h", &host()).replace("%p", &std::process::id().to_string());
        Mutex::new(match File::create(path) {
            Ok(file) => Box::new(file) as Box<dyn Write + Send>,
            Err(_) => Box::new(std::io::stdout()),
        })
    })
}

fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().split('.').next().unwrap_or_default().to_owned()
}
