//! BlockingIo: the driving thread waits for files or pipes. NetworkWait judges waits for peers.

use tprof_facts::units::{bytes, duration};
use tprof_metrics::host::{Place, RankHost};
use tprof_metrics::memory::transfers;
use tprof_rank::samples::Part;
use tprof_trace::model::FileKind;

use super::file_part::{is_explained, transferred};
use super::host_part::{finding_at, host, is_found, too_little, waited, widest, with_lines};
use super::sync_checkpoint;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

const OF_FILES: &str = "Do it on another thread while the job goes on (asynchronous checkpoints, \
     read-ahead), in fewer and larger calls, without a flush for each.";
const OF_DATABASES: &str = "A database writes its files at each commit, and a statement without a \
     transaction is one: put many rows into one transaction, or write on another thread.";

/// Maximum number of files or peers that a sentence lists.
pub(super) const MOST_SHOWN: usize = 3;

/// The rule that judges waits in system calls on files and pipes.
pub(super) struct BlockingIo;

impl Rule for BlockingIo {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "BlockingIo",
            found_if: "as DataWait, of `file_io`, unless SmallReads, ReadTwice or SlowStorage explains \
                 half of it",
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
        let saving_ns =
            sync_checkpoint::of_part(host, Part::FileIo).min(host.ledger.ns(Part::FileIo));
        let ns = host.ledger.ns(Part::FileIo) - saving_ns;
        if !is_found(host, ns) {
            return match is_found(host, saving_ns) {
                true => too_little(host, ns, "waiting for files, except to save,"),
                false => too_little(host, ns, "waiting for files"),
            };
        }
        if is_explained(scene, ns) {
            return Verdict::no_problem(
                "it waits for files, and another finding says how it reads them",
            );
        }
        let mut places = host.ledger.places(Some(Part::FileIo));
        places.retain(|(place, _)| !place.saves);
        let of_database = places.iter().filter(|(place, _)| place.of_database);
        let of_database: u64 = of_database.map(|(_, time)| time.ns).sum();
        let advice = if of_database * 2 > ns { OF_DATABASES } else { OF_FILES };
        let what = "the job waits for a file, a pipe or a disk";
        let is_there = |place: &Place| place.part == Part::FileIo && !place.saves;
        let transfers = match scene.files() {
            Some(files) => {
                transferred(files, MOST_SHOWN, |of| of.kind != FileKind::Socket && !of.saves)
            }
            None => moved(scene, host),
        };
        Verdict::Found(vec![
            finding_at(scene, host, what, ns, is_there)
                .about("files")
                .seen(
                    with_lines(
                        &format!("The driving thread waits for {}", waited(host, &places)),
                        &places,
                    ) + &waited_for(host, Part::FileIo, ns)
                        + &transfers,
                )
                .advice(advice)
                .on_line(widest(&places)),
        ])
    }
}

/// Formats ` What it waits for: /data/a.bin 1.2 s.`; empty if no file or peer is known.
pub(super) fn waited_for(host: &RankHost, part: Part, ns: u64) -> String {
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

/// Says what the whole process transferred, if calls on files were not recorded. Formats ` The process
/// read at least 1.2 GiB (3.0 MiB from storage) and wrote 8.0 KiB …`; empty
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
