//! NetworkWait: the driving thread waits for peers on sockets.

use tprof_facts::units::{bytes, count, duration, percent, rate};
use tprof_metrics::files::{FileSums, JudgedFiles};
use tprof_metrics::host::{Place, RankHost};
use tprof_metrics::machine::{LineUse, fullest_line};
use tprof_rank::base::intervals::Cover;
use tprof_rank::samples::Part;
use tprof_trace::model::{FileKind, FileOperation};

use super::blocking_io::{MOST_SHOWN, waited_for};
use super::file_part::transferred;
use super::host_part::{finding_at, host, is_found, too_little, waited, widest, with_lines};
use super::sync_checkpoint;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// From this share of an interface's line rate on, the line limits what a job receives: protocols take
/// the rest.
const FULL: f64 = 0.7;
/// Number of requests from which on a mean says something.
const LEAST_REQUESTS: u64 = 100;
/// Mean bytes of an answer below which its way takes longer than its bytes.
const SMALL_ANSWER: u64 = 64 << 10;
/// Number of connections from which on they are worth a sentence.
const LEAST_CONNECTIONS: u64 = 10;

const OF_LINE: &str = "The line is full, so more requests at once gain nothing: move fewer bytes \
     (compressed data, smaller samples or types), keep what was received on a local disk, or use \
     another interface.";
const OF_CONNECTIONS: &str = "Keep connections open for the next request (a session, a pool of \
     connections, keep-alive): a new one costs a round trip, and two more with TLS.";
const OF_REQUESTS: &str = "Each request waits for its answer to come back. Ask for many things in one \
     request (a batch, MGET, IN (…), larger ranges), or send the next requests before the first \
     answer is there (a pipeline, asynchronous calls, threads).";
const OF_PEER: &str = "Ask ahead on another thread, ask for more at once, or keep what was received; \
     the peer may be slow itself.";

/// The rule that judges waits for peers on sockets, outside of collectives.
pub(super) struct NetworkWait;

impl Rule for NetworkWait {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "NetworkWait",
            found_if: "as DataWait, of `socket`",
            gain: "as DataWait",
            needs: "as HotFunction; for peers, bytes and requests calls on files (not `--io off`)",
            remedy: "fewer round trips, requests ahead of time, connections that stay open",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let all_ns = host.ledger.ns(Part::Socket);
        let ns = all_ns - sync_checkpoint::of_part(host, Part::Socket).min(all_ns);
        if !is_found(host, ns) {
            return too_little(host, ns, "waiting for peers");
        }
        let mut places = host.ledger.places(Some(Part::Socket));
        places.retain(|(place, _)| !place.saves);
        let calls = scene.files().map(SocketCalls::of).unwrap_or_default();
        let line = line_use(scene, host);
        let is_full = line.as_ref().is_some_and(|line| line.share() >= FULL);
        let mut seen =
            with_lines(&format!("The driving thread waits for {}", waited(host, &places)), &places);
        // The calls name all their peers. Waits name those that tprof could look up in time.
        if calls.ns * 2 < ns {
            seen += &waited_for(host, Part::Socket, ns);
        }
        if let Some(files) = scene.files() {
            seen += &transferred(files, MOST_SHOWN, |of| of.kind == FileKind::Socket && !of.saves);
        }
        let mut advice = OF_PEER;
        if calls.has_small_answers() {
            seen += &format!(
                " {} requests had answers of {} on average, and each took {}.",
                count(calls.requests),
                bytes(calls.received / calls.requests),
                duration(ns / calls.requests),
            );
            advice = OF_REQUESTS;
        }
        if calls.connects_anew() {
            seen += &format!(
                " It connected {} times for {} requests.",
                count(calls.connections),
                count(calls.requests),
            );
            advice = OF_CONNECTIONS;
        }
        if let Some(line) = line {
            seen += &format!(
                " Meanwhile {} carried {}, {} of its line rate.",
                line.place,
                rate(line.bytes_per_s),
                percent(line.share()),
            );
        }
        if is_full {
            advice = OF_LINE;
        }
        let is_there = |place: &Place| place.part == Part::Socket && !place.saves;
        Verdict::Found(vec![
            finding_at(scene, host, "the job waits for a peer", ns, is_there)
                .about("peers")
                .seen(seen)
                .advice(advice)
                .on_line(widest(&places)),
        ])
    }
}

/// Returns how much of the fullest line was used in the longest waits for peers.
fn line_use(scene: &Scene<'_>, host: &RankHost) -> Option<LineUse> {
    let waits = host.longest.iter().filter(|one| one.place.part == Part::Socket);
    fullest_line(scene.rank, &Cover::of(waits.map(|one| one.interval)))
}

/// The driving thread's calls on sockets.
#[derive(Default)]
struct SocketCalls {
    /// Number of calls that sent something. A client sends a request with one call, mostly.
    requests: u64,
    /// Bytes that were received on all sockets.
    received: u64,
    connections: u64,
    /// Time in all calls, ns. A program that polls hardly waits in them.
    ns: u64,
}

impl SocketCalls {
    fn of(files: &JudgedFiles) -> SocketCalls {
        let of_sockets =
            || files.driving.iter().filter(|(of, _)| of.kind == FileKind::Socket && !of.saves);
        let sum = |operation, what: fn(&FileSums) -> u64| {
            let of_it = of_sockets().filter(|(of, _)| of.operation == operation);
            of_it.map(|(_, sum)| what(sum)).sum()
        };
        SocketCalls {
            requests: sum(FileOperation::Write, |sum| sum.calls),
            received: sum(FileOperation::Read, |sum| sum.bytes),
            connections: sum(FileOperation::Connect, |sum| sum.calls),
            ns: of_sockets().map(|(_, sum)| sum.ns).sum(),
        }
    }

    fn has_small_answers(&self) -> bool {
        self.requests >= LEAST_REQUESTS
            && self.received > 0
            && self.received / self.requests < SMALL_ANSWER
    }

    /// Whether hardly more than one request is sent over a connection.
    fn connects_anew(&self) -> bool {
        self.connections >= LEAST_CONNECTIONS && self.requests < self.connections * 2
    }
}
