//! Launches a command, records it, and exits with the command's status.

use super::args::RunArgs;
use super::live_log::{self, LogWriter};
use super::{first_finding, peak, requests, summary};

use crate::commands::export::{self, ExportArgs};
use crate::compile::CompileLogs;
use crate::kineto::Daemon;
use crate::launch::failures::{
    cannot_start, not_executed, not_finished, not_run, not_started, renamed,
};
use crate::launch::fallback;
use crate::launch::follow;
use crate::launch::inherited;
use crate::launch::libraries;
use crate::launch::python_path;
use crate::launch::signals::{self, Signals};
use crate::launch::system;
use crate::launch::wait::{self, Interrupts, Outcome};
use crate::launch::{self, ChildPipes, InheritedState, NotStarted};
use crate::settings::enabled;
use crate::settings::table::OUTPUT;
use crate::settings::{Resolved, resolve};
use crate::terminal::quote;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};
use tprof_collect::ranks::Rank;
use tprof_collect::{
    Activity, Capture, CollectError, Config, IfExists, Libraries, PYTHON_PATH, Session,
};
use tprof_export::tensorboard::LiveLog;
use tprof_facts::units;
use tprof_trace::run::RunInfo;
use tprof_ui::errors::{self, Failure, print_stderr};

/// Exit status of a job that `--on-hang` has ended and that says nothing else: that of SIGTERM, as
/// shells number it.
const ENDED_BY_SIGTERM: u8 = 128 + 15;

/// Runs the command. If a limit prevents tprof from recording, runs it unrecorded.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    record(args).map_err(fallback::run_unrecorded)
}

fn record(args: RunArgs) -> anyhow::Result<ExitCode> {
    let is_enabled = enabled::is_enabled()?;
    if !is_enabled && !args.dry_run && !args.command.is_empty() {
        return Err(enabled::become_command(&args.command).into());
    }
    let directory = current_directory()?;
    let mut resolved = resolve(args.options, &args.command, &directory)?;
    if args.dry_run {
        let bare = format!("# {} is off: the command runs without tprof\n", enabled::ENABLED);
        let text = if is_enabled { String::new() } else { bare } + &resolved.to_toml();
        io::stdout().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(command) = args.command.first() else {
        return Err(Failure::new("no command to run")
            .cause("`tprof run` needs a command after the options")
            .hint("tprof run -- python train.py")
            .into());
    };
    // The program is searched first, so that a mistyped command creates no run.
    let program = launch::find(command).map_err(|why| not_run(command, why))?;
    system::share_one_heap();
    let signals = Signals::block();
    let original =
        InheritedState { mask: signals.original(), open_files: system::open_files_limit() };
    let _ = fallback::prepare(&args.command, original);
    if resolved.config.activities.contains(&Activity::Cpu) {
        tprof_sampler::open_first_event();
    }
    let run = &resolved.config.output;
    let preload = libraries::path_for(&libraries::HOOKS, &args.command, run)?;
    let agent = agent_for(&resolved.config, &args.command)?;
    let python_path = python_path::change(&resolved.config, &args.command)?;

    let pipes = ChildPipes::new().map_err(|error| cannot_start(&error))?;
    inherited::keep_children_waitable();
    let output = resolved.config.output.clone();
    let session = Session::start(resolved.config.clone(), Libraries { preload, agent })
        .map_err(|e| not_started(&output, &e))?;
    warn_renamed(&session, &output);
    let output = session.run_dir().to_owned();
    if !resolved.sources.contains_key(OUTPUT.name) {
        warn_separate_runs(&output);
    }
    resolved.config.output.clone_from(&output);
    if resolved.config.paused && !resolved.quiet {
        // Recording has not started, so the message names the run: the user needs its name for
        // `tprof ctl start`.
        let run = quote::word(quote::nearby(&output).as_os_str());
        print_stderr(&format!("tprof: recording is off; start with: tprof ctl start {run}\n"));
    }
    if let Some(plan) = plan(&resolved.config).filter(|_| !resolved.quiet) {
        print_stderr(&format!("tprof: {plan}\n"));
    }
    let daemon = match resolved.config.kineto.map(|window| Daemon::start(window, &session)) {
        Some(Err(failure)) => {
            withdraw(session);
            return Err(failure.into());
        }
        started => started.transpose()?,
    };
    let logs = match resolved.config.compile.then(|| CompileLogs::start(&session)) {
        Some(Err(failure)) => {
            withdraw(session);
            return Err(failure.into());
        }
        started => started.transpose()?,
    };
    let log = LogWriter::start(&resolved, &output);
    let has_ended_job = session.has_ended_job();
    let launched = launch_and_wait(
        session,
        &args.command,
        &program,
        (&original, pipes),
        &signals,
        &resolved,
        Variables {
            python_path,
            kineto: daemon.as_ref().map(Daemon::environment),
            compile: logs.as_ref().map(CompileLogs::environment),
        },
    );
    let (session, outcome) = match launched {
        Ok(launched) => launched,
        Err(failure) => {
            // These have directories in the run's directory. They are removed first, so that the
            // run's directory is empty and can be removed too.
            drop((daemon, logs));
            let _ = std::fs::remove_dir(&output);
            return Err(failure.into());
        }
    };
    let windows = daemon.map(Daemon::finish).unwrap_or_default();
    windows.blind.iter().for_each(|blind| session.add_blind_spot(blind.clone()));
    let compiled = logs.map(|logs| logs.finish(&session));
    let info = finish(session, outcome, &signals);
    let info = info.map_err(|e| not_finished(&output, &e));
    let log = log.and_then(LogWriter::stop);
    let output = &resolved.config.output;
    let notes = [windows.line(output), compiled.as_ref().and_then(|logs| logs.line(output))];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    after(&resolved, info, outcome, notes, log);
    if has_ended_job.load(Acquire) && matches!(outcome, Outcome::Ended(0)) {
        // A job that ends in order by SIGTERM has not done its work. A scheduler must see that.
        return Ok(ExitCode::from(ENDED_BY_SIGTERM));
    }
    Ok(end_as(outcome))
}

/// Describes what a schedule or a capture will record; `None` without either.
fn plan(config: &Config) -> Option<String> {
    let schedule = config.schedule.map(|timetable| timetable.plan());
    schedule.or_else(|| config.capture.as_ref().map(Capture::plan))
}

/// Prints where the run is if it isn't in the requested directory. This is printed even with
/// `--quiet`, because the user would look in the requested directory.
pub fn warn_renamed(session: &Session, asked: &Path) {
    if let Some(why) = session.renamed() {
        print_stderr(&renamed(asked, session.run_dir(), why));
    }
}

/// Warns, once per job, that each rank has its own run: without `-o`, the ranks don't share a name.
fn warn_separate_runs(output: &Path) {
    let own = Rank::of_process(std::process::id());
    let Some(size) = own.filter(|rank| rank.number == 0).and_then(|rank| rank.size) else {
        return;
    };
    if size > 1 {
        let run = quote::word(quote::nearby(output).as_os_str());
        print_stderr(&format!(
            "tprof: each of {size} ranks records into a run of its own, rank 0 into {run}; -o DIR makes one run\n"
        ));
    }
}

/// Returns the path of the CUPTI agent; `None` if the recording doesn't need it.
pub fn agent_for(
    config: &Config,
    command: &[OsString],
) -> Result<Option<std::path::PathBuf>, Failure> {
    let wanted = config
        .activities
        .iter()
        .any(|a| matches!(a, Activity::Gpu | Activity::Comm | Activity::Nvtx));
    let path = || libraries::path_for(&libraries::AGENT, command, &config.output);
    wanted.then(path).transpose()
}

/// Returns the directory that relative paths start from.
pub fn current_directory() -> Result<std::path::PathBuf, Failure> {
    std::env::current_dir().map_err(|e| {
        Failure::new("the current directory cannot be used")
            .because(&e, "cd to a directory that exists")
    })
}

/// Variables to set for the job, in addition to those of the session.
struct Variables {
    python_path: Option<OsString>,
    kineto: Option<Vec<(OsString, OsString)>>,
    compile: Option<Vec<(OsString, OsString)>>,
}

fn launch_and_wait(
    session: Session,
    command: &[OsString],
    program: &Path,
    (original, pipes): (&InheritedState, ChildPipes),
    signals: &Signals,
    resolved: &Resolved,
    variables: Variables,
) -> Result<(Session, Outcome), Failure> {
    let given = std::env::var_os("LD_PRELOAD");
    let preload = given.as_deref().map(libraries::without_tprof_libraries);
    let mut changes = session.environment(preload.as_deref().filter(|text| !text.is_empty()));
    changes.extend(variables.python_path.map(|path| (PYTHON_PATH.into(), path)));
    changes.extend(variables.kineto.into_iter().flatten());
    changes.extend(variables.compile.into_iter().flatten());
    if launch::refuses_libraries(program) {
        // The program can't load tprof's library, so LD_PRELOAD gets the value that it would have
        // without tprof.
        changes.retain(|(name, _)| name != "LD_PRELOAD");
        if let Some(preload) = preload.filter(|_| preload_changed(given.as_deref())) {
            changes.push(("LD_PRELOAD".into(), preload));
        }
    }
    let started = launch::fork(command, &changes, original, pipes).and_then(|held| {
        let pid = held.pid();
        session.root_started(pid.unsigned_abs());
        signals.forward_pending(pid);
        held.go()?;
        fallback::job_runs(pid);
        Ok(pid)
    });
    match started {
        Ok(pid) => {
            let asked_to_end = |signal| session.asked_to_end(signal);
            let asks_for_dump = |signal| {
                let is_asked = resolved.config.dump_on.signal == Some(signal);
                if is_asked {
                    session.dump(format!("tprof got {}", units::signal(signal)));
                }
                is_asked
            };
            let outcome = wait::wait(pid, signals, &asked_to_end, &asks_for_dump);
            fallback::job_ended(outcome);
            match outcome {
                Outcome::Ended(status) => {
                    session.root_ended(pid.unsigned_abs(), status);
                    if resolved.config.follow {
                        follow::follow(&session, signals, resolved.quiet);
                    }
                }
                Outcome::Interrupted => session.stop_waiting(),
            }
            Ok((session, outcome))
        }
        Err(e) => {
            withdraw(session);
            Err(match e {
                NotStarted::Process(error) => cannot_start(&error),
                NotStarted::Exec(error) => not_executed(&command[0], error),
            })
        }
    }
}

/// Whether the inherited LD_PRELOAD contains the library of an outer recording, which must be
/// removed.
fn preload_changed(given: Option<&OsStr>) -> bool {
    given.is_some_and(|text| libraries::without_tprof_libraries(text) != text)
}

/// Removes a run that never began. Removes only the files of this session, because other collectors
/// may write into the directory.
pub fn withdraw(session: Session) {
    let directory = session.run_dir().to_owned();
    let Ok(info) = session.finish() else { return };
    for file in &info.files {
        let _ = std::fs::remove_file(directory.join(file));
    }
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let text = tprof_trace::read_plain(&path).unwrap_or_default();
        let is_json = path.extension() == Some(OsStr::new("json"));
        let own =
            |run: RunInfo| run.session == info.session && run.collector_pid == info.collector_pid;
        if is_json && serde_json::from_slice(&text).is_ok_and(own) {
            let _ = std::fs::remove_file(path);
        }
    }
    // This fails, as intended, while the directory is not empty.
    let _ = std::fs::remove_dir(&directory);
}

/// Waits for the collector to finish. Ctrl-C can still end tprof meanwhile.
fn finish(session: Session, outcome: Outcome, signals: &Signals) -> Result<RunInfo, CollectError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = || {
            let mut interrupts = Interrupts::default();
            if outcome == Outcome::Interrupted {
                interrupts.is_double(Instant::now());
            }
            while !done.load(Relaxed) {
                let taken = signals.next(Duration::from_millis(20));
                let now = Instant::now();
                match taken.map(|taken| taken.signal) {
                    Some(libc::SIGINT) if interrupts.is_double(now) => {
                        signals::die_like_job(libc::SIGINT)
                    }
                    Some(signal @ (libc::SIGTERM | libc::SIGQUIT)) => signals::die_like_job(signal),
                    _ => {}
                }
            }
        };
        // If the thread cannot be started, only SIGKILL can end tprof from here on.
        let _ = std::thread::Builder::new().spawn_scoped(scope, watch);
        let info = session.finish();
        done.store(true, Relaxed);
        // This signal wakes the thread. Otherwise every run would wait up to 20 ms longer.
        signals::send(std::process::id().cast_signed(), libc::SIGCHLD);
        info
    })
}

/// Prints the summary, and writes exports. Errors here do not change the exit status.
fn after(
    resolved: &Resolved,
    info: Result<RunInfo, Failure>,
    outcome: Outcome,
    notes: Vec<String>,
    log: Option<LiveLog>,
) {
    let info = match info {
        Ok(info) => info,
        Err(failure) => {
            errors::show(&failure.into());
            return;
        }
    };
    if !resolved.quiet {
        let notes = notes.into_iter().chain(info.notes.clone()).collect();
        let peak = peak::of(&resolved.config.output, &info);
        let shown = first_finding::of(&resolved.config.output, &info);
        print_stderr(&summary::summary(&info, peak, shown, &resolved.config, outcome, notes));
    }
    let output = &resolved.config.output;
    if resolved.export.is_none() && requests::pending(output).is_empty() {
        return;
    }
    let made = stdout_is_the_jobs(resolved.quiet).and_then(|()| {
        requests::make(output, &info);
        match (resolved.export.as_deref(), log) {
            (Some(live_log::FORMAT), Some(log)) => complete(log, output),
            (Some(format), _) => export_after(resolved, format),
            (None, _) => Ok(()),
        }
    });
    if let Err(error) = made {
        errors::show(&error);
    }
}

/// Redirects this process's stdout to stderr, or to `/dev/null` if `quiet`: exports print paths to
/// stdout, which belongs to the job.
fn stdout_is_the_jobs(quiet: bool) -> anyhow::Result<()> {
    match quiet {
        true => system::redirect_stdout(&File::options().write(true).open("/dev/null")?)?,
        false => system::redirect_stdout(io::stderr())?,
    }
    Ok(())
}

fn complete(log: LiveLog, output: &Path) -> anyhow::Result<()> {
    let written = export::tensorboard::complete(log, output)?;
    export::print(&written)?;
    Ok(())
}

fn export_after(resolved: &Resolved, format: &str) -> anyhow::Result<()> {
    export::run(ExportArgs {
        path: resolved.config.output.clone(),
        to: format.to_owned(),
        force: resolved.config.if_exists == IfExists::Force,
        ..ExportArgs::default()
    })?;
    Ok(())
}

/// Returns the job's exit status. If a signal killed the job, dies by the same signal.
pub fn end_as(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Interrupted => signals::die_like_job(libc::SIGINT),
        Outcome::Ended(status) if libc::WIFSIGNALED(status) => {
            signals::die_like_job(libc::WTERMSIG(status))
        }
        // `WEXITSTATUS` has eight bits, so the first byte has all of it.
        Outcome::Ended(status) => ExitCode::from(libc::WEXITSTATUS(status).to_le_bytes()[0]),
    }
}
