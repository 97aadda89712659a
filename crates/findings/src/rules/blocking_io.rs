//! BlockingIo: the driving thread waits for files, pipes or peers.

use tprof_facts::units::{bytes, duration};
use tprof_metrics::files::Use;
use tprof_metrics::host::RankHost;
use tprof_metrics::memory::transfers;
use tprof_rank::samples::Part;
use tprof_trace::model::FileKind;

use super::file_part::transferred;
use super::host_part::{finding_at, host, is_found, too_little, waited, widest, with_lines};
use super::read_twice::ReadTwice;
use super::slow_storage::SlowStorage;
use super::small_reads::SmallReads;
use super::sync_checkpoint;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

const OF_FILES: &str = "Do it on another thread while the job goes on (asynchronous checkpoints, \
     read-ahead), in fewer and larger calls, without a flush for each.";
const OF_DATABASES: &str = "A database writes its files at each commit, and a statement without a \
     transaction is one: put many rows into one transaction, or write on another thread.";
const OF_SOCKETS: &str = "Ask ahead on another thread, ask for more at once, or keep what was \
     received; the peer may be slow itself.";

/// Maximum number of files and peers that a sentence lists.
const MOST_SHOWN: usize = 3;

/// The rule that judges waits in system calls for input and output.
pub(super) struct BlockingIo;

impl Rule for BlockingIo {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "BlockingIo",
            found_if: "as DataWait, of `file_io` (subject `files`) and of `socket` (`sockets`)",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "read ahead or in another thread, keep files on a local disk",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let kinds = [
            (Part::FileIo, "files", "the job waits for a file, a pipe or a disk", OF_FILES),
            (Part::Socket, "sockets", "the job waits for a peer", OF_SOCKETS),
        ];
        let saving = |part| sync_checkpoint::of_part(host, part).min(host.ledger.ns(part));
        let mut found = Vec::new();
        for (part, subject, what, advice) in kinds {
            let ns = host.ledger.ns(part) - saving(part);
            if !is_found(host, ns) || (part == Part::FileIo && is_explained(scene, ns)) {
                continue;
            }
            let mut places = host.ledger.places(Some(part));
            places.retain(|(place, _)| !place.saves);
            let of_database = places.iter().filter(|(place, _)| place.of_database);
            let of_database: u64 = of_database.map(|(_, time)| time.ns).sum();
            let advice = if of_database * 2 > ns { OF_DATABASES } else { advice };
            found.push(
                finding_at(scene, host, what, ns, |place| place.part == part && !place.saves)
                    .about(subject)
                    .seen(
                        with_lines(&format!("It waits for {}", waited(host, &places)), &places)
                            + &waited_for(host, part, ns)
                            + &bytes_of(scene, host, part),
                    )
                    .advice(advice)
                    .on_line(widest(&places)),
            );
        }
        if found.is_empty() {
            let ns = host.ledger.ns(Part::FileIo) - saving(Part::FileIo);
            if is_found(host, ns) && is_explained(scene, ns) {
                return Verdict::no_problem(
                    "it waits for files, and another finding says how it reads them",
                );
            }
            let left = |part| host.ledger.ns(part) - saving(part);
            let ns = left(Part::FileIo) + left(Part::Socket);
            let saving_ns = saving(Part::FileIo) + saving(Part::Socket);
            return match is_found(host, saving_ns) {
                true => too_little(host, ns, "waiting for files and peers, except to save,"),
                false => too_little(host, ns, "waiting for files and peers"),
            };
        }
        Verdict::Found(found)
    }
}

/// Whether a rule that says more explains at least half of the waits for files.
fn is_explained(scene: &Scene<'_>, ns: u64) -> bool {
    let rules: [&dyn Rule; 3] = [&SmallReads, &ReadTwice, &SlowStorage];
    rules.iter().any(|rule| match rule.judge(scene) {
        Verdict::Found(found) => found.iter().any(|finding| finding.bound_ns * 2 >= ns),
        _ => false,
    })
}

/// Formats ` Of files and peers most for /data/a.bin (1.2 s).`; empty if no file or peer is known.
fn waited_for(host: &RankHost, part: Part, ns: u64) -> String {
    let all = host.ledger.waited_for(part);
    let known: u64 = all.iter().map(|(_, ns)| ns).sum();
    let unknown = ns.saturating_sub(known);
    let mut shown: Vec<String> =
        all.iter().take(MOST_SHOWN).map(|(what, ns)| format!("{what} {}", duration(*ns))).collect();
    match shown.is_empty() {
        true => return String::new(),
        false if unknown > known / 10 => shown.push(format!("unknown {}", duration(unknown))),
        false => {}
    }
    format!(" What it waits for: {}.", shown.join(", "))
}

/// Says what the calls of a part transferred. Without recorded calls, the bytes are those of the whole
/// process, as the kernel counts them.
fn bytes_of(scene: &Scene<'_>, host: &RankHost, part: Part) -> String {
    let is_socket = |of: &Use| of.kind == FileKind::Socket;
    match scene.files() {
        Some(files) => transferred(files, MOST_SHOWN, |of| {
            is_socket(of) == (part == Part::Socket) && !of.saves
        }),
        None => moved(scene, host),
    }
}

/// Formats ` The process read at least 1.2 GiB (3.0 MiB from storage) and wrote 8.0 KiB …`; empty
/// if that is unknown. The numbers cover the whole life of the process, because the kernel counts
/// by process.
fn moved(scene: &Scene<'_>, host: &RankHost) -> String {
    let Some(moved) = transfers::of_process(scene.rank.file, host.driver.process) else {
        return String::new();
    };
    format!(
        " The process read at least {} by calls ({} from storage) and wrote {} ({} to storage), all files \
         and pipes included.",
        bytes(moved.read),
        bytes(moved.storage_read),
        bytes(moved.written),
        bytes(moved.storage_written)
    )
}
