//! `tprof report cpu`: in which functions the time of running threads went, and
//! where threads waited.

use std::collections::BTreeMap;

use tprof_document::{
    Analysis, Body, DocumentKind, OptionMatches, Options, RankContext, boxed, text_and_number,
};
use tprof_rank::samples::{CpuTrace, Layer};
use tprof_rank::{HostSpan, Needs, RankTrace};
use tprof_trace::model::SpanKind;

use super::filter;
use super::joined::JoinedCpu;
use super::ranges::range_name;
use super::rank_cpu::RankCpu;

/// The kind of report.
pub const KIND: DocumentKind = DocumentKind {
    name: "cpu",
    about: "where the CPU time went, by function",
    analysis: || boxed(CpuReport),
};

/// The report `cpu`: CPU time by function and thread.
pub struct CpuReport;

impl Analysis for CpuReport {
    const HTA: bool = false;
    const TAKES: &'static [&'static str] = &["--within", "--lines", "--sort", "--mine", "--thread"];
    const KIND: &'static str = "cpu";
    type Part = RankCpu;

    fn needs(&self, _: &Options) -> Needs {
        Needs::SAMPLES | Needs::STEPS | Needs::spans(SpanKind::Nvtx)
    }

    fn option_matches(&self, rank: &RankTrace<'_>, options: &Options) -> Vec<OptionMatches> {
        let mut named = Vec::new();
        if let Some(within) = options.within_text() {
            let name = |span: &HostSpan| range_name(rank, span.category, span.name);
            let spans = rank.spans(SpanKind::Nvtx).iter();
            let option = ("--within", "NVTX ranges");
            named.push(OptionMatches::of(option, text_and_number(within), spans, name));
        }
        if let Some(thread) = options.thread.as_deref() {
            named.push(filter::named(rank, thread));
        }
        if options.mine && rank.cpu.rows > 0 {
            named.push(own_files(&rank.cpu));
        }
        named
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankCpu {
        RankCpu::of(rank, at, options)
    }

    fn join(&self, parts: Vec<(RankContext, RankCpu)>, options: &Options) -> Body {
        JoinedCpu::of(parts).body(options)
    }
}

/// Matches `--mine` with the files of the functions on sampled stacks.
fn own_files(cpu: &CpuTrace) -> OptionMatches {
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let mut chosen = false;
    for func in cpu.names.all() {
        chosen |= func.is_own();
        if !func.file.is_empty() && func.layer == Layer::Python {
            *names.entry(func.file.to_string()).or_default() += 1;
        }
    }
    let (option, what) = ("--mine", "files");
    OptionMatches { option, what, text: String::new(), chosen, matching: 0, names }
}
