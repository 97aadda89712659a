//! Errors of commands that launch a job, with the exit status that a shell would return.

use crate::launch::Unusable;
use crate::terminal::quote;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use tprof_collect::CollectError;
use tprof_ui::errors::{Failure, NOT_EXECUTABLE, NOT_FOUND, reason, remedy};

/// Returns the error for a command that cannot be run.
pub fn not_run(command: &OsStr, why: Unusable) -> Failure {
    let name = command.to_string_lossy();
    let by_path = name.contains('/');
    match why {
        Unusable::NotFound => {
            let failure = Failure::new(format!("cannot run `{name}`: command not found"));
            let here = Path::new(command).is_file();
            let failure = match (name.is_empty(), by_path) {
                (true, _) => {
                    failure.cause("the name is empty").hint("tprof run -- python train.py")
                }
                (_, true) => failure.cause("the file does not exist").hint("ls, to check the path"),
                _ if here => failure
                    .cause("the command is not in any directory of PATH")
                    .hint(format!("tprof run -- ./{name}")),
                _ => {
                    failure.cause("the command is not in any directory of PATH").hint("echo $PATH")
                }
            };
            failure.code(NOT_FOUND)
        }
        Unusable::NotExecutable(e) => {
            let of_the_file = || format!("cannot run `{name}`: not executable");
            let (what, hint) = match e.raw_os_error() {
                Some(libc::EISDIR) => (of_the_file(), "a program, not a directory".to_owned()),
                Some(libc::EACCES) => {
                    (of_the_file(), format!("chmod +x {name}, or name its interpreter first"))
                }
                Some(libc::ENOEXEC | libc::EINVAL | libc::ELIBBAD | libc::EPERM) => {
                    (of_the_file(), format!("file {name}"))
                }
                Some(libc::E2BIG) => {
                    (format!("cannot run `{name}`"), "fewer or shorter arguments".to_owned())
                }
                // The error can have many causes, such as a limit, the disk, or a process that is
                // writing the file.
                _ => (format!("cannot run `{name}`"), format!("file {name}")),
            };
            Failure::new(what).because(&e, hint).code(NOT_EXECUTABLE)
        }
    }
}

/// Returns the error for a file that exists, but whose interpreter the kernel did not find.
fn missing_interpreter(command: &OsStr) -> Failure {
    let name = command.to_string_lossy();
    Failure::new(format!("cannot run `{name}`"))
        .cause("the file exists, but the interpreter or loader that it names does not")
        .hint(format!("head -1 {name}, or `file {name}`"))
        .code(NOT_FOUND)
}

/// Returns the error for a command that the kernel refused to execute.
pub fn not_executed(command: &OsStr, error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOENT) => missing_interpreter(command),
        _ => not_run(command, Unusable::NotExecutable(error)),
    }
}

/// Returns the error for a process that cannot be started.
pub fn cannot_start(error: &io::Error) -> Failure {
    Failure::new("cannot start a process")
        .because(error, "ulimit -u, and the memory limit of the job")
}

/// Describes how an existing run conflicts with the new one; `None` if the error has another
/// reason.
fn in_the_way(error: &CollectError) -> Option<String> {
    Some(match error {
        CollectError::RunExists(_) => "the directory contains a run".to_owned(),
        CollectError::OtherJob { known: true, .. } => {
            "the directory contains a run of another job".to_owned()
        }
        CollectError::OtherJob { known: false, .. } => {
            "the directory contains a finished run, and no job id connects that run to this job"
                .to_owned()
        }
        CollectError::RunIsLive { pid, .. } => {
            format!("process {pid} is recording into the directory")
        }
        _ => return None,
    })
}

/// Returns the warning that the run is in another directory, next to the requested one.
pub fn renamed(asked: &Path, directory: &Path, why: &CollectError) -> String {
    let [asked, directory] =
        [asked, directory].map(|path| quote::nearby(path).display().to_string());
    let why = in_the_way(why).unwrap_or_else(|| why.to_string());
    format!("tprof: recording into `{directory}`, not `{asked}`: {why}\n")
}

/// Returns the error for a recording that did not begin.
pub fn not_started(output: &Path, error: &CollectError) -> Failure {
    let shown = output.display();
    let failure = Failure::new(format!("cannot record into `{shown}`"));
    if let Some(why) = in_the_way(error) {
        return failure.cause(why).hint(match error {
            CollectError::RunIsLive { .. } => {
                "-o with another directory, or wait until that run has ended"
            }
            _ => "--force to replace the run, or -o with another directory",
        });
    }
    match error {
        CollectError::NotADirectory(_) => {
            failure.cause("the path exists and is not a directory").hint("-o with another path")
        }
        CollectError::Unwritable { path, source } => {
            let why = reason(source);
            let cause = match path == output {
                true => why,
                false => format!("{why}: {}", path.display()),
            };
            let hint = remedy(source, "-o with a writable directory");
            failure.cause(cause).hint(hint).limited_by(source)
        }
        error => {
            let usual = "tprof doctor, to check this machine";
            let failure = Failure::new("cannot start recording").cause(with_sources(error));
            match system_error(error) {
                Some(source) => failure.hint(remedy(source, usual)).limited_by(source),
                None => failure.hint(usual),
            }
        }
    }
}

/// Returns the error for a run that was not finished properly.
pub fn not_finished(output: &Path, error: &CollectError) -> Failure {
    let shown = output.display();
    Failure::new(format!("the run in `{shown}` is not complete")).cause(with_sources(error)).hint(
        format!("tprof report {}, for the part that was written", quote::word(output.as_os_str())),
    )
}

/// Returns the operating system's error that caused another error.
fn system_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.filter_map(|error| error.downcast_ref::<io::Error>()).next()
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text += &format!(": {inner_text}");
        }
        source = inner.source();
    }
    text
}
