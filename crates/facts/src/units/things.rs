//! Formats counts with their nouns, and names of signals.

use tprof_trace::Recorded;

use super::count;

/// Formats a number with its noun: `1 step`, `1,234 steps`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// Formats the number of recorded events and samples: `3,397 events and 12 CPU samples`, `52 CPU
/// samples`, `0 events`.
pub fn recorded(recorded: Recorded) -> String {
    let some = |n: u64, one: &str, many: &str| (n > 0).then(|| counted(n, one, many));
    match (
        some(recorded.events, "event", "events"),
        some(recorded.samples, "CPU sample", "CPU samples"),
    ) {
        (Some(events), Some(samples)) => format!("{events} and {samples}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "0 events".to_owned(),
    }
}

/// Formats a number of processes: `1 process`, `46 processes (84 program images)`. Images are
/// mentioned only if there are more of them.
pub fn processes(processes: usize, images: usize) -> String {
    let all = counted(processes as u64, "process", "processes");
    match images == processes {
        true => all,
        false => format!("{all} ({} program images)", count(images as u64)),
    }
}

/// Returns the name of a signal, or `signal N` if it isn't in this list.
pub fn signal(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}
