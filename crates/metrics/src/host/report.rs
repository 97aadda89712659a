//! The report `tprof report host`, described in the parent module.

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_facts::units::{duration, percent};
use tprof_rank::samples::{NO_SAMPLES, Part};
use tprof_rank::{Needs, RankTrace};

use super::rank_host::RankHost;
use super::tables;

/// The kind of report.
pub const KIND: DocumentKind = DocumentKind {
    name: "host",
    about: "all wall time of each rank's driving thread, by cause and line",
    analysis: || boxed(HostReport),
};

/// The report `host`: wall time of the thread that drives each rank.
pub struct HostReport;

impl Analysis for HostReport {
    const HTA: bool = false;
    const KIND: &'static str = KIND.name;
    type Part = Option<RankHost>;

    fn needs(&self, _: &Options) -> Needs {
        RankHost::NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> Option<RankHost> {
        // A launcher drives no rank.
        at.rank?;
        let host = RankHost::within(rank, |steps| options.cut.interval(at.clock, steps));
        host.map(|host| host.with_bytes(rank))
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        let ranks: Vec<(RankContext, RankHost)> =
            parts.into_iter().filter_map(|(at, part)| Some((at, part?))).collect();
        let notes = match ranks.as_slice() {
            [] => Vec::new(),
            [(_, one)] => vec![judged("", one)],
            many => {
                many.iter().map(|(at, host)| judged(&format!("{}: ", at.label), host)).collect()
            }
        };
        Body { tables: tables::all(&ranks, NO_SAMPLES), notes }
    }
}

/// Writes a note on which time was judged, and how long the rest is.
fn judged(rank: &str, host: &RankHost) -> String {
    let RankHost { driver, life, ledger, start_up, .. } = host;
    let mut text = format!(
        "{rank}{} of thread {} ({}), from {}",
        duration(ledger.wall_ns),
        driver.tid,
        driver.name,
        life.start.words()
    );
    if start_up.wall_ns > 0 {
        text.push_str(&format!("; start-up of {} is apart", duration(start_up.wall_ns)));
    }
    let outside_ns = host.outside_ns();
    if outside_ns > 0 && outside_ns * 100 >= life.whole.length() {
        let of = if start_up.wall_ns > 0 { "both" } else { "it" };
        text.push_str(&format!("; {} lie outside of {of}", duration(outside_ns)));
    }
    let unknown = ledger.ns(Part::Unknown) as f64 / ledger.wall_ns.max(1) as f64;
    if unknown >= 0.01 {
        text.push_str(&format!(
            "; what it did in {} of this time was not recorded",
            percent(unknown)
        ));
    }
    text
}
