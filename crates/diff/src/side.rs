//! Reads one side of a comparison: the metrics of each step, and totals by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tprof_analyze::{AnalyzeError, DocumentContext, read_ranks};
use tprof_document::{Options, begin};
use tprof_facts::steps::StepSource;
use tprof_metrics::recording;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::completeness::Completeness;
use tprof_rank::run::info::Run;
use tprof_rank::run::step_cost::StepCost;
use tprof_trace::RunDir;
use tprof_trace::run::RunInfo;

use super::facts::{self, Facts};
use super::figures::{Figure, FigureSum, WITHOUT_LOST_CORES};
use super::host::HostActivity;
use super::names::TimesByName;
use super::rank::RankAnalysis;
use super::run_figures::Peaks;

/// The data of one run that a comparison uses.
#[derive(Debug)]
pub struct Side {
    /// The run: command, hosts, state.
    pub run: Run,
    /// How complete the recording is.
    pub completeness: Completeness,
    /// Errors of files that could not be read.
    pub problems: Vec<String>,
    /// Hardware and configuration of the run.
    pub facts: Facts,
    /// Number of rank files.
    pub ranks: u64,
    /// Whether only some of the run's ranks were read. The wall time then covers only these ranks.
    pub in_part: bool,
    /// Number of rank files that were summed into `names`.
    pub sharers: u64,
    /// Whether `figures` has a value for each step. Otherwise it describes the whole trace, which
    /// then counts as the only step.
    pub stepped: bool,
    /// The sources of the ranks' steps.
    pub sources: BTreeSet<StepSource>,
    /// Numbers of the steps, in order, without the warm-up steps.
    pub steps: Vec<u64>,
    /// Numbers of the steps that are warm-up on any rank; empty if the user chose steps.
    pub warm_up: BTreeSet<u64>,
    /// Values of each metric by step, as means over ranks.
    pub figures: BTreeMap<&'static str, Vec<f64>>,
    /// Values of the metrics of the whole run.
    pub totals: Vec<Figure>,
    /// Totals of each name in each step, summed over ranks.
    pub names: TimesByName,
    /// The activity of the hosts.
    pub host: HostActivity,
    /// Cost of recording per step, on the rank that recording slowed most.
    pub cost: Option<StepCost>,
    /// Whether operators were recorded for only a part of the time on some rank.
    pub operators_ended: bool,
}

impl Side {
    /// Reads a run directory or one of its files.
    pub fn read(path: &Path, options: &SideOptions) -> Result<Side, AnalyzeError> {
        let SideOptions { rank, steps_from, is_running, .. } = *options;
        let common = Options { rank, steps_from, is_running, ..Options::default() };
        let analysis = RankAnalysis { steps: options.steps, ..RankAnalysis::default() };
        let begun = begin(analysis);
        let read = read_ranks(path, &[], &[&begun], &common, None)?;
        let (analysis, parts) = begun.into_parts();
        let DocumentContext { completeness, problems, operators_ended, .. } =
            read.contexts[0].clone();
        let mut names = analysis.names.into_inner().unwrap_or_default();
        let host = analysis.host.into_inner().unwrap_or_default();
        let in_part = options.rank.is_some() || path.is_file();
        let mut facts = facts::of_run(&RunDir::open(path)?);
        let stepped = parts.iter().any(|(_, part)| part.stepped);
        let mut side = Side {
            run: read.run,
            completeness,
            problems,
            ranks: parts.iter().filter(|(at, _)| at.rank.is_some()).count() as u64,
            in_part,
            sharers: 0,
            facts: Facts::default(),
            stepped,
            sources: BTreeSet::new(),
            steps: Vec::new(),
            warm_up: BTreeSet::new(),
            figures: BTreeMap::new(),
            totals: Vec::new(),
            names: names.remove(&stepped).unwrap_or_default(),
            host,
            cost: recording::worst(parts.iter().filter_map(|(_, part)| part.cost.as_ref()))
                .cloned(),
            operators_ended: operators_ended > 0,
        };
        let mut sums: BTreeMap<u64, FigureSum> = BTreeMap::new();
        let mut peaks = Peaks::default();
        let mut longest_ns = None;
        for (at, part) in parts {
            longest_ns = longest_ns.max(part.life_ns);
            facts.merge(part.facts);
            if at.rank.is_some() {
                peaks.most(part.peaks);
            }
            // A launcher has no steps, and neither has a rank that died before its first step. Skip
            // such ranks if other ranks have steps.
            if part.stepped != stepped {
                continue;
            }
            side.sharers += 1;
            side.sources.extend(part.source);
            side.warm_up.extend(part.warm_up);
            for (number, times, lost_ns) in part.steps {
                sums.entry(number).or_default().add(&times, lost_ns);
            }
        }
        sums.retain(|number, _| !side.warm_up.contains(number));
        for by_step in side.names.values_mut() {
            by_step.retain(|number, _| !side.warm_up.contains(number));
        }
        side.names.retain(|_, by_step| !by_step.is_empty());
        for (number, sum) in sums {
            side.steps.push(number);
            for (key, mean) in sum.means() {
                side.figures.entry(key).or_default().push(mean);
            }
        }
        // A metric that only some steps have can't be compared with the times of all steps, so drop
        // it.
        let steps = side.steps.len();
        side.figures.retain(|key, values| *key != WITHOUT_LOST_CORES || values.len() == steps);
        facts.set("ranks", side.ranks.to_string());
        side.facts = facts;
        let wall = match (in_part, longest_ns) {
            (false, _) => side.run.wall_ns.clone(),
            (true, Some(longest_ns)) => Reading::Is(longest_ns),
            (true, None) => Reading::missing("no process was recorded"),
        };
        side.totals = vec![
            Figure { key: "wall_time", value: wall },
            Figure { key: "cpu_time", value: side.host.cpu_time() },
            Figure { key: "processes", value: Reading::Is(side.host.processes) },
            Figure { key: "threads", value: Reading::Is(side.host.threads) },
        ];
        side.totals.extend(peaks.figures());
        Ok(side)
    }
}

/// The part of a run to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct SideOptions {
    /// The only rank to read; `None` for all.
    pub rank: Option<u32>,
    /// The only steps to read, by the first and the last number; `None` for all.
    pub steps: Option<(u64, u64)>,
    /// The source of steps; `None` for the first source that has any.
    pub steps_from: Option<StepSource>,
    /// Decides whether the collector of a run still works; see [`Options`].
    pub is_running: Option<fn(&RunInfo, &Path) -> bool>,
}
