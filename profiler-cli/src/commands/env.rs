//! `tprof env`: prints the variables that a shell must export so that processes started by hand are
//! recorded. The first of these processes starts the collector.
//!
//! `tprof env` leaves no process running. It creates the session's directory, which has a random,
//! unique name.

use crate::commands::run;
use crate::launch::failures::{not_started, renamed};
use crate::launch::libraries;
use crate::launch::python_path;
use crate::settings::RunOptions;
use crate::settings::enabled;
use crate::settings::gpu::NCCL;
use crate::settings::pytorch::{COMPILE, KINETO};
use crate::settings::table::EXPORT;
use crate::settings::{check_paused, resolve};
use crate::terminal::quote;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tprof_collect::{Config, NcclEvent, PYTHON_PATH};
use tprof_ui::errors::{Failure, print_stderr};
use tprof_wire::env as names;

/// Arguments of `tprof env`.
#[derive(Args, Debug)]
pub struct EnvArgs {
    /// Load everything, and record nothing until `tprof ctl start [--steps N]` (same as --paused)
    #[arg(long)]
    pub dormant: bool,
    /// Settings of the recording.
    #[command(flatten)]
    pub options: RunOptions,
}

/// Prints the lines with `export`.
pub fn run(args: EnvArgs) -> anyhow::Result<ExitCode> {
    if !enabled::is_enabled()? {
        // Without exported variables, processes that are started later aren't recorded.
        return Ok(ExitCode::SUCCESS);
    }
    let directory = run::current_directory()?;
    let mut resolved = resolve(args.options, &[], &directory)?;
    resolved.config.paused |= args.dormant;
    check_paused(&resolved.config)?;
    // `--export` on the command line is an error. If a configuration file or a variable sets it, it
    // is ignored, because the user meant it for `tprof run`.
    if let Some(format) =
        resolved.export.as_ref().filter(|_| resolved.is_from_command_line(EXPORT.name))
    {
        let path = resolved.config.output.display().to_string();
        return Err(Failure::new(format!("`tprof env` cannot export to {format}"))
            .cause("only `tprof run` waits for the end of the job")
            .hint(format!("tprof export {path} --to {format}, after the job"))
            .into());
    }
    // The same holds for `--kineto`: only `tprof run` can record a window.
    if resolved.config.kineto.take().is_some() && resolved.is_from_command_line(KINETO.name) {
        return Err(Failure::new("`tprof env` cannot ask for a window of PyTorch's profiler")
            .cause("only `tprof run` waits for the trace")
            .hint("tprof run --kineto -- COMMAND")
            .into());
    }
    // The same holds for `--compile`: only `tprof run` bounds and copies the log.
    if std::mem::take(&mut resolved.config.compile) && resolved.is_from_command_line(COMPILE.name) {
        return Err(Failure::new("`tprof env` cannot keep the log of torch.compile")
            .cause("only `tprof run` limits the length of the log")
            .hint("TORCH_TRACE=DIR for the job, then: tprof import DIR -o RUN")
            .into());
    }
    let has_log = resolved.config.nccl.contains(&NcclEvent::Log);
    resolved.config.nccl.retain(|event| *event != NcclEvent::Log);
    if has_log && resolved.is_from_command_line(NCCL.name) {
        return Err(Failure::new("`tprof env` cannot keep NCCL's log")
            .cause("only `tprof run` makes a directory for it")
            .hint("NCCL_DEBUG=INFO NCCL_DEBUG_FILE=DIR/%h.%p.log for the job, which tprof reads")
            .into());
    }
    // The output directory is checked now, because the collector, which runs later, has no terminal
    // on which to report an error.
    let output = resolved.config.output.clone();
    let path = tprof_collect::free(&resolved.config).map_err(|e| not_started(&output, &e))?;
    if let Some(why) = &path.renamed {
        print_stderr(&renamed(&output, &path.directory, why));
    }
    resolved.config.output = path.directory;
    let preload = libraries::path_for(&libraries::HOOKS, &[], &resolved.config.output)?;
    let binary = std::env::current_exe().map_err(|e| {
        Failure::new("cannot find the path of the tprof binary")
            .because(&e, "mount /proc, or start tprof with its full path")
    })?;
    let session = make_session()?;
    let mut lines = vec![
        (names::SESSION, session.into_os_string()),
        (names::BIN, binary.into_os_string()),
        (names::OUTPUT, resolved.config.output.clone().into_os_string()),
        (names::OPTIONS, serde_json::to_string(&resolved.config)?.into()),
        // An empty value means any host. It replaces the value that an outer session may have
        // exported.
        (names::HOST, OsString::new()),
        ("LD_PRELOAD", preloads(&preload, std::env::var_os("LD_PRELOAD").as_deref())),
    ];
    if let Some(agent) = run::agent_for(&resolved.config, &[])? {
        let given = |name: &str| std::env::var_os(name);
        lines.extend(tprof_collect::injections(&agent, &resolved.config, &given));
    }
    lines.extend(python_path::change(&resolved.config, &[])?.map(|path| (PYTHON_PATH, path)));
    let mut text = Vec::new();
    for (name, value) in lines {
        text.extend(format!("export {name}=").as_bytes());
        text.extend(quote::quoted(&value).as_bytes());
        text.push(b'\n');
    }
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Implements the hidden command `__collect`: records until all attached processes have ended.
pub fn collect(session: &Path) -> anyhow::Result<ExitCode> {
    let options = std::env::var(names::OPTIONS).map_err(|_| started_by_hand())?;
    let mut config: Config = serde_json::from_str(&options).map_err(|_| started_by_hand())?;
    if let Some(output) = std::env::var_os(names::OUTPUT).filter(|text| !text.is_empty()) {
        config.output = PathBuf::from(output);
    }
    tprof_collect::collect_on_demand(session, config)?;
    Ok(ExitCode::SUCCESS)
}

fn started_by_hand() -> Failure {
    Failure::new("`tprof __collect` is an internal command")
        .cause(format!("{} does not contain the options of a run", names::OPTIONS))
        .hint("eval \"$(tprof env -o DIR)\"")
}

/// Creates a new directory for the session's socket, private to this user. It is in `/tmp` if
/// possible, because `/tmp` exists on all hosts of a job, and its path is short enough for the
/// address of a socket.
pub fn make_session() -> Result<PathBuf, Failure> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for base in ["/tmp", "/var/tmp", "/dev/shm"] {
        for _ in 0..16 {
            let Ok(random) = random() else { continue };
            let path = Path::new(base).join(format!("tprof-{random}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(path),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    last = e;
                    break;
                }
            }
        }
    }
    Err(Failure::new("cannot create a session directory in /tmp, /var/tmp or /dev/shm")
        .because(&last, "df /tmp; ls -ld /tmp"))
}

/// Returns 64 random bits as hexadecimal digits.
fn random() -> io::Result<String> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Returns the value of `LD_PRELOAD`: tprof's library, then the libraries of the existing value.
fn preloads(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let existing = existing.map(libraries::without_tprof_libraries).filter(|text| !text.is_empty());
    if let Some(existing) = existing {
        value.push(":");
        value.push(existing);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/x/libtprof_preload.so");
        let value = |existing: &str| preloads(library, Some(OsStr::new(existing)));
        assert_eq!(value(""), "/x/libtprof_preload.so");
        assert_eq!(value("/j.so /k.so"), "/x/libtprof_preload.so:/j.so /k.so");
        assert_eq!(value("/y/libtprof_preload.so:/j.so"), "/x/libtprof_preload.so:/j.so");
    }
}
