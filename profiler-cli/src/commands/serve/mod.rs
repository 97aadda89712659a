//! `tprof serve` and `tprof top`. The program `tprof-serve`, in the directory of this program,
//! executes them.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use tprof_ui::args::{ServeArgs, TopArgs};
use tprof_ui::errors::Failure;
use tprof_ui::newest::live_run_here;

/// Name of the server's program.
const SERVER: &str = "tprof-serve";
/// Variable with the path of this program, for the server.
const PROGRAM: &str = "TPROF_PROGRAM";

/// Replaces this process with `tprof-serve serve`.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let mut words: Vec<OsString> = vec!["serve".into()];
    let switches = [
        ("--seed-port", args.seed_port),
        ("--no-browser", args.no_browser),
        ("--control", args.control),
    ];
    words.extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name.into()));
    let mut value = |name: &str, value: &OsStr| {
        let mut word = OsString::from(format!("{name}="));
        word.push(value);
        words.push(word);
    };
    if let Some(port) = args.port {
        value("--port", port.to_string().as_ref());
    }
    if let Some(address) = args.bind {
        value("--bind", address.to_string().as_ref());
    }
    let files = [
        ("--tls-cert", &args.tls_cert),
        ("--tls-key", &args.tls_key),
        ("--token-file", &args.token_file),
    ];
    for (name, file) in files {
        if let Some(file) = file {
            value(name, file.as_os_str());
        }
    }
    for host in &args.host {
        value("--host", host.as_ref());
    }
    if let Some(collector) = &args.otlp {
        value("--otlp", collector.as_ref());
    }
    value("--memory-limit", args.memory_limit.as_ref());
    value("--time-limit", args.time_limit.as_ref());
    words.push("--".into());
    words.extend(args.paths.iter().map(OsString::from));
    become_server(words)
}

/// Replaces this process with `tprof-serve top`. If no run is named, it shows the newest live run
/// in the current directory.
pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let run = match &args.run {
        Some(run) => run.clone(),
        None => live_run_here("tprof top")?.into_os_string(),
    };
    let mut words: Vec<OsString> = vec!["top".into()];
    let switches = [("--once", args.once), ("--json", args.json)];
    words.extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name.into()));
    words.extend(["--".into(), run]);
    become_server(words)
}

/// Replaces this process with `tprof-serve` and these arguments.
pub fn become_server(words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name(SERVER);
    let server = if beside.is_file() { beside } else { PathBuf::from(SERVER) };
    let error = Command::new(&server).args(words).env(PROGRAM, own).exec();
    Err(Failure::new(format!("cannot start {SERVER}"))
        .because(
            &error,
            format!(
                "install {SERVER} beside tprof: archives and wheels have both, and \
                 `cargo build --release -p tprof-cli` builds both"
            ),
        )
        .into())
}
