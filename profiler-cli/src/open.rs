//! `tprof open`: shows a run in Perfetto's page.
//!
//! The page fetches the trace from this machine alone: a server on 127.0.0.1
//! gives it out under a name that cannot be guessed, to that page's origin. The
//! page's own policy allows it to fetch from port 9001 and no other.

mod serve;

use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use tprof_export::{Options, perfetto};
use tprof_trace::RunDir;

use crate::cli::OpenArgs;
use crate::errors::{Failure, said, say};
use crate::export::failure::failure;
use crate::import::open_run_or_import;
use crate::report::trace_failure;
use crate::symbols::Late;

/// Exports the run, serves it, and opens the page on it; until Ctrl-C.
pub fn run(args: OpenArgs) -> anyhow::Result<ExitCode> {
    // Bound first: a port in use should not cost an export.
    let listener = TcpListener::bind(("127.0.0.1", args.port)).map_err(|e| busy(&args, &e))?;
    let port = listener.local_addr()?.port();
    let slice = crate::export::slice(&args.slice)?;
    let opened = open_run_or_import(&args.path)?;
    let run = RunDir::open(opened.path()).map_err(|error| trace_failure(&args.path, &error))?;
    for problem in run.problems() {
        say(&format!("note: {}\n", problem.what));
    }
    let dir = tempfile::tempdir()?;
    let late = Late::default();
    let output = Some(dir.path().join("trace.pftrace.gz"));
    let options = Options { output, slice, symbols: Some(&late), ..Options::default() };
    let written = perfetto::export(&run, &options).map_err(|error| failure(&args.path, &error))?;
    for note in late.notes().iter().chain(&written.notes) {
        say(&format!("note: {note}\n"));
    }
    let server = serve::Server::new(listener, &written.paths[0], &args.ui)?;
    let url = format!("{}/#!/?url={}", args.ui.trim_end_matches('/'), server.url(port));
    writeln!(std::io::stdout(), "{url}")?;
    if !args.no_browser && !open_browser(&url) {
        say("note: no browser could be started here: open the address above in one.\n");
        say(&format!(
            "note: from another machine: ssh -L {port}:127.0.0.1:{port} to this one first\n"
        ));
    }
    if std::io::stderr().is_terminal() {
        say("Serving the trace to that page; Ctrl-C ends.\n");
    }
    server.run(args.once)?;
    Ok(ExitCode::SUCCESS)
}

fn busy(args: &OpenArgs, error: &std::io::Error) -> Failure {
    let (path, port) = (args.path.display(), args.port);
    Failure::new(format!("cannot listen on 127.0.0.1:{port}")).cause(said(error)).hint(format!(
        "end what listens there (another tprof open?), or \
             tprof export {path} --to perfetto and drop the file on {}",
        args.ui
    ))
}

/// Whether something took the address.
fn open_browser(url: &str) -> bool {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"];
    if !has_display.iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty())) {
        return false;
    }
    let named = std::env::var("BROWSER").ok().filter(|name| Path::new(name).is_absolute());
    let openers = named.into_iter().chain(["xdg-open".to_owned(), "wslview".to_owned()]);
    for opener in openers {
        let mut command = Command::new(opener);
        let quiet = command.arg(url).stdin(Stdio::null()).stdout(Stdio::null());
        if let Ok(mut child) = quiet.stderr(Stdio::null()).spawn() {
            // Openers hand over and end; a browser itself may stay.
            std::thread::sleep(std::time::Duration::from_millis(200));
            match child.try_wait() {
                Ok(Some(status)) if !status.success() => continue,
                _ => return true,
            }
        }
    }
    false
}
