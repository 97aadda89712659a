//! Accepts connections. Limits their number, and the time in which each client must send its
//! request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// Number of connections at once; more wait in the system's queue.
const CONNECTIONS: usize = 2000;
/// How long a client may take for the head of a request, or be idle.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a client may leave the answer unread before the connection is closed.
const SENT_TIME: Duration = Duration::from_secs(60);
/// Longest head of a request in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// Where connections come from.
pub struct Listen {
    /// The listening socket.
    pub socket: TcpListener,
    /// If set, connections are encrypted.
    pub tls: Option<TlsAcceptor>,
}

/// Answers connections forever.
pub async fn listen(listen: Listen, router: Router) {
    let free = Arc::new(Semaphore::new(connections()));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let stream = match listen.socket.accept().await {
            Ok((stream, _)) => stream,
            // Either the process has no descriptors left, or the client closed the connection
            // before it was accepted.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let (router, tls) = (router.clone(), listen.tls.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let _ = stream.set_nodelay(true);
            match tls {
                None => answer(stream, router).await,
                Some(tls) => answer_encrypted(stream, &tls, router).await,
            }
        });
    }
}

async fn answer_encrypted(stream: TcpStream, tls: &TlsAcceptor, router: Router) {
    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIME, tls.accept(stream)).await {
        answer(stream, router).await;
    }
}

/// Answers the requests of one connection until it is closed.
pub async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SENT_TIME));
    // Errors are ignored, because the client causes them: it left, sent an invalid request, or does
    // not read the answer.
    let _ = protocol.serve_connection(TokioIo::new(Box::pin(stream)), service).await;
}

/// Returns how many connections the limit on descriptors permits, with some descriptors left for
/// files.
fn connections() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return CONNECTIONS / 8 };
    let wanted = hard.min(4 * CONNECTIONS as u64).max(soft);
    let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_or(soft, |()| wanted);
    CONNECTIONS.min(raised as usize / 2)
}
