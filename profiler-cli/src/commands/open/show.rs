//! Shows a run in Perfetto, or in one of tprof's own pages.
//!
//! The browser fetches the files only from this machine: a server on 127.0.0.1 serves them under a
//! random path. Perfetto's page may read a trace too. Its content security policy allows it to do
//! so only from port 9001.

use super::args::{OpenArgs, View};
use super::serve;

use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tprof_ui::browser;
use tprof_ui::errors::{Failure, print_stderr, reason};

use crate::commands::export::{self, ExportArgs};
use crate::launch::ctrl_c;
use crate::runs::foreign::open_run_or_import;
use crate::runs::formats::{Format, find};
use crate::runs::scratch::{self, Scratch};

/// Address of Perfetto's page, unless `--ui` gives another.
const UI: &str = "https://ui.perfetto.dev";
/// The port from which Perfetto's page may fetch traces.
const PORT: u16 = 9001;

/// Exports the run, serves the files, and opens the page. Runs until Ctrl-C.
pub fn run(args: OpenArgs) -> anyhow::Result<ExitCode> {
    if args.view != View::Perfetto && args.ui.is_some() {
        return Err(Failure::new("--ui applies only to Perfetto")
            .cause("the pages of tprof need no server")
            .hint("drop --ui, or --as perfetto")
            .into());
    }
    let formats: Vec<&Format> = made(args.view).iter().filter_map(|name| find(name)).collect();
    for format in &formats {
        // Wrong options are refused here, before any work, so that the error names this command.
        export::wanted(&export_args(&args, format, Path::new("")))?;
    }
    let serving = end_by_signal();
    // The port is bound first, so that the error for a used port comes before the export.
    let port = args.port.unwrap_or(if args.view == View::Perfetto { PORT } else { 0 });
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|e| busy(&args, port, &e))?;
    let port = listener.local_addr()?.port();
    let opened = open_run_or_import(&args.path)?;
    let dir = Scratch::new("open").map_err(|error| {
        Failure::new("cannot create a temporary directory for the page")
            .because(&error, "set TMPDIR to a directory with free space")
    })?;
    let mut files = Vec::new();
    for format in formats {
        let options = export_args(&args, format, &dir.path().join(format.goes));
        files.extend(export::write(format, &options, opened.path())?.paths);
    }
    // The requested page was exported last, but the server expects it first.
    files.reverse();
    let ui = args.ui.as_deref().unwrap_or(UI);
    let origin = (args.view == View::Perfetto).then_some(ui);
    let server = serve::Server::new(listener, files, origin)?;
    let url = match args.view {
        View::Perfetto => format!("{}/#!/?url={}", ui.trim_end_matches('/'), server.url(port)),
        _ => server.url(port),
    };
    serving.store(true, Relaxed);
    writeln!(std::io::stdout(), "{url}")?;
    if !args.no_browser && !browser::open(&url, dir.path()).unwrap_or(false) {
        print_stderr("note: no browser started; open the address above in a browser.\n");
        print_stderr(&format!(
            "note: on another machine, first run ssh -L {port}:127.0.0.1:{port} HOST\n"
        ));
    }
    if std::io::stderr().is_terminal() {
        print_stderr("Serving the run to this page; Ctrl-C stops.\n");
    }
    server.run(args.once)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends this command at the first Ctrl-C, and removes its temporary files. The caller sets the
/// returned flag when the server runs: then Ctrl-C is the normal end, with exit status 0.
fn end_by_signal() -> Arc<AtomicBool> {
    let serving = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&serving);
    ctrl_c::on_end(move || {
        scratch::remove_all();
        std::process::exit(if own.load(Relaxed) { 0 } else { 128 + libc::SIGINT });
    });
    serving
}

/// Returns the formats to export for a view. Its own format is the last; the report page links to
/// the others.
fn made(view: View) -> &'static [&'static str] {
    match view {
        View::Perfetto => &["perfetto"],
        View::Timeline => &["timeline"],
        View::Flame => &["flame"],
        View::Report => &["timeline", "flame", "report"],
    }
}

fn export_args(args: &OpenArgs, format: &Format, output: &Path) -> ExportArgs {
    ExportArgs {
        path: args.path.clone(),
        to: format.name.to_owned(),
        output: Some(output.to_path_buf()),
        slice: args.slice.clone(),
        ..ExportArgs::default()
    }
}

fn busy(args: &OpenArgs, port: u16, error: &std::io::Error) -> Failure {
    let path = args.path.display();
    let failure = Failure::new(format!("cannot listen on 127.0.0.1:{port}")).cause(reason(error));
    match args.view {
        View::Perfetto => failure.hint(format!(
            "stop the process that uses the port (another tprof open?), or tprof export {path} \
             --to perfetto and open the file in {}",
            args.ui.as_deref().unwrap_or(UI)
        )),
        _ => failure.hint("drop --port, for any free port"),
    }
}
