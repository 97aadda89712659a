//! Entry point for the fuzz target `http` in `fuzz/`: requests as bytes, without a socket.
//!
//! It exists only with the feature `fuzzing`, so that the router and the checks of requests stay
//! private.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::{Router, middleware};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use crate::answers;
use crate::app::{App, Catalogue};
use crate::http::{self, Guard, Token};
use crate::runs::Registry;
use crate::work::{JobQueue, Limits, Tprof};

/// The port that requests must name.
pub const PORT: u16 = 8080;
/// Longest time for the answers to all requests of a connection.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of bytes that a connection buffers each way.
const BUFFER_BYTES: usize = 64 << 10;

/// A server that listens nowhere.
pub struct Server {
    runtime: Runtime,
    router: Router,
}

impl Server {
    /// Creates a server of the runs in a directory. It offers one report and one export, but has no
    /// program that makes them. Requests need the token in a file.
    pub fn new(runs: &Path, token: &Path, is_control: bool) -> Server {
        let registry = Registry::of(&[runs.to_owned()], "").expect("the directory exists");
        let token = Token::from_file(token).expect("the file holds a token");
        let hosts = vec!["127.0.0.1".to_owned(), "[::1]".to_owned()];
        let (port, is_encrypted, is_archive) = (PORT, false, false);
        let guard = Arc::new(Guard { token, hosts, port, is_encrypted, is_control, is_archive });
        let catalogue = serde_json::from_str::<Catalogue>(
            r#"{"tprof": "", "kinds": [{"name": "summary", "about": ""}], "formats":
                [{"name": "chrome", "about": "", "file": "trace.json", "is_one_file": true}]}"#,
        );
        let limits = Limits { memory_bytes: 0, output_bytes: 0, time: PATIENCE };
        // A path with a NUL is refused before a process is forked.
        let jobs = JobQueue::new(Tprof::new("\0".into(), limits), 1);
        let catalogue = Arc::new(catalogue.expect("the catalogue is whole"));
        let app = App::new(registry, jobs, Arc::clone(&guard), catalogue);
        let router = answers::router().with_state(app);
        let router = router.layer(middleware::from_fn_with_state(guard, http::check));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Server { runtime, router }
    }

    /// Answers the requests that a client sends before it closes its side, and returns the answers.
    pub fn answer(&self, requests: &[u8]) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(BUFFER_BYTES);
        let served = http::answer(server, self.router.clone());
        let all = async {
            let mut answers = Vec::new();
            let (mut from, mut to) = tokio::io::split(&mut client);
            let send = async {
                // The server may have closed its side.
                let _ = to.write_all(requests).await;
                let _ = to.shutdown().await;
            };
            let receive = from.read_to_end(&mut answers);
            let ((), _, ()) = tokio::join!(send, receive, served);
            answers
        };
        self.in_time(all)
    }

    fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(PATIENCE, work).await };
        self.runtime.block_on(limited).expect("the answers do not end")
    }
}
