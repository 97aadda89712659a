//! Runs the server: binds a socket, prints the address, opens a browser, and answers requests until
//! a signal.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::answers;
use crate::app::{App, Catalogue};
use crate::archive::{Address, Archive};
use crate::failure::Failure;
use crate::http::{self, Guard, Listen, Token};
use crate::options::Options;
use crate::runs::Registry;
use crate::shutdown_signals::ShutdownSignals;
use crate::work::{JobQueue, Tprof};

/// Number of threads that answer requests. Few suffice, because child processes do the slow work.
const THREADS: usize = 2;
/// How long the temporary page that redirects a browser to this server exists.
const HANDED_OVER: Duration = Duration::from_secs(20);
/// How long to wait for running work when the server ends.
const END: Duration = Duration::from_millis(300);

/// The data that a server shows.
enum Shown {
    Runs(Registry),
    Archive(Arc<Archive>),
}

/// Serves until Ctrl-C, SIGTERM or SIGHUP.
pub fn serve(options: &Options) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::new("cannot start the server", error);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(failed)?;
    let ended = runtime.block_on(run(options));
    runtime.shutdown_timeout(END);
    ended
}

async fn run(options: &Options) -> Result<ExitCode, Failure> {
    let mut ends =
        ShutdownSignals::new().map_err(|error| Failure::new("cannot take signals", error))?;
    let tls = encryption(options)?;
    let archive = Address::find_archive(&options.paths)?;
    if archive.as_ref().is_some_and(|address| address.unarchived_runs() > 0) {
        eprintln!("note: the directory is an archive; runs that lie in it, too, are not shown.");
        eprintln!("note: tprof serve RUN… shows them");
    }
    if archive.is_some() && options.is_control {
        return Err(Failure::misuse(
            "--control does not apply to an archive",
            "an archive only grows, by `tprof archive`: nothing of it is changed or deleted",
        )
        .hint("tprof serve ARCHIVE"));
    }
    if archive.is_some() && options.collector.is_some() {
        return Err(Failure::misuse("--otlp does not apply to an archive", "no run of it goes on")
            .hint("tprof serve ARCHIVE"));
    }
    let tprof = Tprof::new(options.tprof.clone(), options.limits);
    let catalogue = Arc::new(Catalogue::of(&tprof).await?);
    let shown = match archive {
        Some(address) => {
            let memory_bytes = options.limits.memory_bytes;
            let open = archived(address, tprof.clone(), Arc::clone(&catalogue), memory_bytes);
            // A store may take long before it fails, so a signal must be able to interrupt this.
            tokio::select! {
                archive = open => Shown::Archive(archive?),
                () = ends.wait() => return Ok(ExitCode::SUCCESS),
            }
        }
        None => Shown::Runs(Registry::of(&options.paths, "tprof serve DIR")?),
    };
    let token = token(options)?;
    let socket = bind(options).await?;
    let address = socket.local_addr().map_err(|error| Failure::new("cannot listen", error))?;
    let guard = Arc::new(Guard {
        token,
        hosts: hosts(options, address.ip()),
        port: address.port(),
        is_encrypted: tls.is_some(),
        is_control: options.is_control,
        is_archive: matches!(shown, Shown::Archive(_)),
    });
    let router = match shown {
        Shown::Archive(archive) => answers::router_of_archive().with_state(archive),
        Shown::Runs(registry) => {
            let app = App::new(registry, JobQueue::new(tprof, 1), Arc::clone(&guard), catalogue);
            let summing = Arc::clone(&app);
            tokio::spawn(async move { summing.summaries.work(&summing.jobs).await });
            if let Some(collector) = options.collector.clone() {
                tokio::spawn(collector.send_on(Arc::clone(&app)));
            }
            answers::router().with_state(app)
        }
    };
    let router = router.layer(middleware::from_fn_with_state(Arc::clone(&guard), http::check));
    tokio::spawn(http::listen(Listen { socket, tls }, router));
    let leading = announce(options, &guard)?;
    tokio::select! {
        () = ends.wait() => {}
        () = forget(leading) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the list of an archive's runs.
async fn archived(
    address: Address,
    tprof: Tprof,
    catalogue: Arc<Catalogue>,
    memory_bytes: u64,
) -> Result<Arc<Archive>, Failure> {
    if std::io::stderr().is_terminal() {
        eprintln!("Reading the archive.");
    }
    // Two queries run at once, because most of the time of a query is spent in the store.
    Archive::open(address, JobQueue::new(tprof, 2), memory_bytes, catalogue).await
}

/// Prints the address, and opens a browser by way of a page in a private directory, because
/// arguments of a process, which all users can see, must not contain the token.
fn announce(options: &Options, guard: &Guard) -> Result<Option<tempfile::TempDir>, Failure> {
    let url = guard.address();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{url}")
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::new("cannot print the address", error))?;
    let mut leading = None;
    if let Some(open) = options.browser {
        let folder = tempfile::Builder::new().prefix("tprof-serve-").tempdir();
        let opened = folder.is_ok_and(|folder| {
            let opened = open(&url, folder.path());
            leading = Some(folder);
            opened
        });
        if !opened {
            let port = guard.port;
            eprintln!("note: no browser started; open the address above in a browser.");
            eprintln!("note: on another machine, first run ssh -L {port}:127.0.0.1:{port} HOST");
        }
    }
    if std::io::stderr().is_terminal() {
        eprintln!("Serving; Ctrl-C stops.");
    }
    Ok(leading)
}

/// Removes the page that redirects to this server, after [`HANDED_OVER`], and waits forever.
async fn forget(leading: Option<tempfile::TempDir>) {
    tokio::time::sleep(HANDED_OVER).await;
    drop(leading);
    std::future::pending::<()>().await;
}

fn encryption(options: &Options) -> Result<Option<TlsAcceptor>, Failure> {
    match &options.tls {
        Some((certificate, key)) => http::acceptor(certificate, key).map(Some),
        None if !options.address.is_loopback() => {
            Err(Failure::new("the server is not opened to other machines without a certificate",
                "the token would cross the network unencrypted")
                .hint("--tls-cert CHAIN.pem --tls-key KEY.pem, or ssh -L 8080:127.0.0.1:8080 HOST with --port 8080"))
        }
        None => Ok(None),
    }
}

fn token(options: &Options) -> Result<Token, Failure> {
    match &options.token_file {
        None => Token::random().map_err(|error| Failure::new("cannot make a token", error)),
        Some(path) => Token::from_file(path).map_err(|error| {
            Failure::new(format!("cannot take the token from `{}`", path.display()), error)
                .hint("--token-file with a path that does not exist: tprof creates the file")
        }),
    }
}

async fn bind(options: &Options) -> Result<TcpListener, Failure> {
    let address = SocketAddr::new(options.address, options.port);
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("cannot listen on {address}"), error)
            .hint("drop --port, for any free port, or end the program that uses it")
    })
}

/// Returns the names of this machine; the first is used in the printed address.
fn hosts(options: &Options, ip: IpAddr) -> Vec<String> {
    let own = match ip {
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let mut hosts = options.hosts.clone();
    if !ip.is_unspecified() {
        hosts.push(own);
    }
    if !options.address.is_loopback() {
        hosts.extend(nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()));
    }
    hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(str::to_owned));
    hosts
}
