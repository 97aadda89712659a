//! `tprof attach`: samples a running process, and leaves the process unchanged.
//!
//! No library is loaded into the process, and it isn't stopped: tprof opens perf counters on its
//! threads and on those of its children. When tprof ends, the kernel closes the counters.

use crate::commands::run::{
    counted_events, current_directory, first_finding, warn_renamed, withdraw,
};
use crate::launch::ctrl_c;
use crate::launch::failures::{not_finished, not_started};
use crate::launch::system;
use crate::settings::RunOptions;
use crate::settings::enabled;
use crate::settings::{BOOL, flag_of, resolve, table};
use crate::terminal::quote;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tprof_collect::{Libraries, Session};
use tprof_facts::units::{self, parse_duration};
use tprof_os::proc::{self, Stat};
use tprof_ui::errors::{Failure, print_stderr};
use tprof_ui::paint;

/// Arguments of `tprof attach`.
#[derive(Args, Debug)]
pub struct AttachArgs {
    /// Process to sample, with its threads and children
    #[arg(value_name = "PID", allow_hyphen_values = true)]
    pub pid: String,
    /// Do not sample descendants that are already running
    #[arg(long)]
    pub alone: bool,
    /// Stop after this time, e.g. 10s [default: at Ctrl-C or when the process ends]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<OsString>,
    /// Run directory [default: tprof-COMMAND-TIME]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<OsString>,
    /// CPU samples per second and thread [default: 99]
    #[arg(long, value_name = "HZ", allow_hyphen_values = true)]
    pub sample_rate: Option<OsString>,
    /// CPU time of the process that sampling may cost, such as 1%; while it costs more,
    /// samples are taken less often
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub budget: Option<OsString>,
    /// How to take stacks: auto (by unwind tables), fp (by frame pointers only),
    /// dwarf (same as auto) or off (take none) [default: auto]
    #[arg(long, value_name = "MODE")]
    pub stacks: Option<OsString>,
    /// Events to count: auto, none, or a list such as cycles,page-faults [default: auto]
    #[arg(long, value_name = "LIST")]
    pub counters: Option<OsString>,
    /// Replace an existing run; sample process 1 or one that started tprof
    #[arg(long, value_name = BOOL, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub force: Option<OsString>,
    /// Leave arguments and paths out of the run
    #[arg(long, value_name = BOOL, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redact: Option<OsString>,
    /// Do not print a summary
    #[arg(short, long, value_name = BOOL, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub quiet: Option<OsString>,
}

/// Samples the process.
pub fn run(args: AttachArgs) -> anyhow::Result<ExitCode> {
    if !enabled::is_enabled()? {
        return Err(Failure::new(format!("process {} is not sampled", args.pid))
            .cause(format!("{} switches recording off", enabled::ENABLED))
            .hint(format!("unset {}", enabled::ENABLED))
            .into());
    }
    let pid = process(&args.pid)?;
    let is_forced = match &args.force {
        Some(text) => flag_of(&table::FORCE, text)?,
        None => false,
    };
    if !args.alone && !is_forced {
        refuse_whole_session(pid)?;
    }
    let directory = current_directory()?;
    let duration = args.duration.clone();
    let options = RunOptions::new([
        (&table::OUTPUT, args.output),
        (&table::FORCE, args.force),
        (&table::ACTIVITY, Some("cpu".into())),
        (&table::STACKS, args.stacks),
        (&table::SAMPLE_RATE, args.sample_rate),
        (&table::BUDGET, args.budget),
        (&table::COUNTERS, args.counters),
        (&table::REDACT, args.redact),
        (&table::QUIET, args.quiet),
    ]);
    // The name of the run comes from the process's command line.
    let command: Vec<OsString> = proc::words_of(pid).into_iter().map(OsString::from).collect();
    let mut resolved = resolve(options, &command, &directory)?;
    // The run's file records the working directory of the process, not of this command.
    let started_in = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    resolved.config.started_in = Some(started_in);
    let time = duration.map(|text| time_of(&text)).transpose()?;
    let ending = end_by_signal(resolved.quiet);
    let output = resolved.config.output.clone();
    let session =
        Session::start(resolved.config.clone(), Libraries { preload: PathBuf::new(), agent: None })
            .map_err(|e| not_started(&output, &e))?;
    warn_renamed(&session, &output);
    let output = session.run_dir().to_owned();
    let count = match session.attach(pid, args.alone) {
        Ok(count) => count,
        Err(why) => {
            // The run is removed, because an empty run would look as if the process had done
            // nothing.
            withdraw(session);
            return Err(Failure::new(format!("cannot sample process {pid}"))
                .cause(why)
                .hint("tprof doctor")
                .into());
        }
    };
    if !resolved.quiet {
        let end = match time {
            Some(time) => format!("for {}", units::duration(time.as_nanos() as u64)),
            None => "until Ctrl-C or the end of the process".to_owned(),
        };
        let others = match count {
            1 => String::new(),
            2 => " and 1 descendant".to_owned(),
            count => format!(" and {} descendants", count - 1),
        };
        print_stderr(&format!("tprof: sampling process {pid}{others} {end}\n"));
    }
    wait(pid, time, &ending);
    let info = session.finish().map_err(|e| not_finished(&output, &e))?;
    if !resolved.quiet {
        let run = quote::word(quote::nearby(&output).as_os_str());
        let ran = info.end_ns.unwrap_or(info.start_ns).saturating_sub(info.start_ns);
        let mut text = format!(
            "{}  {} recorded in {}\n",
            paint::label("tprof"),
            counted_events(&info),
            units::duration(ran)
        );
        for loss in &info.completeness.losses {
            text += &format!("       lost: {} {} ({})\n", loss.count, loss.what, loss.why);
        }
        for blind in &info.completeness.blind {
            text += &format!(
                "       not recorded of {}: {} ({})\n",
                blind.process_words(),
                blind.what,
                blind.why
            );
        }
        // A process that waits has no CPU samples, but it has findings.
        let (tprof, found) = (quote::program(), first_finding(&output, &info));
        let kind = if found.is_some() { "findings" } else { "cpu" };
        if let Some(found) = found {
            text += &format!("{}  {found}\n", paint::label("found"));
        }
        text += &format!("{}  {run}\n", paint::label("  run"));
        text += &format!("{}  {tprof} report {kind} {run}\n", paint::label(" next"));
        print_stderr(&text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a flag that the first ending signal sets. A second signal ends tprof at once.
fn end_by_signal(quiet: bool) -> Arc<AtomicBool> {
    let ending = Arc::new(AtomicBool::new(false));
    let (own, main) = (Arc::clone(&ending), std::thread::current());
    ctrl_c::on_end(move || {
        if own.swap(true, Relaxed) {
            std::process::exit(128 + libc::SIGINT);
        }
        if !quiet {
            print_stderr(
                "tprof: finishing; a second Ctrl-C stops at once and leaves the run incomplete\n",
            );
        }
        main.unpark();
    });
    ending
}

/// Waits until the time is over, the process ends, or a signal ends tprof.
fn wait(pid: u32, time: Option<Duration>, ending: &AtomicBool) {
    let began = Instant::now();
    while proc::lives(pid) && !ending.load(Relaxed) {
        let left = time.map_or(Duration::MAX, |time| time.saturating_sub(began.elapsed()));
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left.min(Duration::from_millis(100)));
    }
}

/// Parses a pid, and checks that the process can be sampled.
fn process(text: &str) -> Result<u32, Failure> {
    let failure = |why: String| Failure::new(format!("cannot sample process `{text}`")).cause(why);
    let Some(pid) = text.parse::<u32>().ok().filter(|pid| *pid > 0) else {
        return Err(failure("the process id is a number above 0".to_owned())
            .hint("tprof attach $(pgrep -n python)"));
    };
    let stat = Stat::of(pid).ok_or_else(|| {
        failure("no such process in this pid namespace".to_owned()).hint(
            "pgrep -a NAME; run tprof inside the container of the process, or as root outside",
        )
    })?;
    if !stat.lives() {
        return Err(failure(
            "the process has ended, and its parent has not collected its status".to_owned(),
        )
        .hint("attach to a running process"));
    }
    if stat.is_kernel_thread() {
        return Err(
            failure("the process is a kernel thread".to_owned()).hint("perf record -g -p PID")
        );
    }
    if pid == std::process::id() {
        return Err(failure("this is the process of tprof itself".to_owned())
            .hint("attach to another process"));
    }
    if !system::is_owned_by_user(pid) {
        return Err(failure("the process belongs to another user".to_owned())
            .hint(format!("sudo tprof attach {pid}")));
    }
    Ok(pid)
}

/// Refuses process 1 and the ancestors of tprof, because all descendants of a process are sampled
/// too. Process 1 has all programs of the machine or container as descendants. An ancestor has
/// tprof itself.
fn refuse_whole_session(pid: u32) -> Result<(), Failure> {
    let mut ancestors = std::iter::successors(proc::parent_of(std::process::id()), |pid| {
        proc::parent_of(*pid).filter(|parent| *parent > 0)
    });
    let why = match pid {
        1 => "all programs of this machine or container descend from process 1",
        _ if ancestors.any(|ancestor| ancestor == pid) => {
            "the process started tprof, and all that runs below the process is sampled too"
        }
        _ => return Ok(()),
    };
    Err(Failure::new(format!("process {pid} is not sampled")).cause(why).hint(format!(
        "`--alone` samples only this process; `tprof attach --force {pid}` samples all"
    )))
}

fn time_of(text: &OsString) -> Result<Duration, Failure> {
    let time = text.to_str().and_then(parse_duration).filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        Failure::new(format!("bad value `{}` for --duration", text.to_string_lossy()))
            .cause("the time is a number above 0 with a unit, such as 500ms, 2s or 5m")
            .hint("--duration=10s")
    })
}
