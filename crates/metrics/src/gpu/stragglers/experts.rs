//! Measures how unevenly the tokens of experts are spread over ranks.
//!
//! Ranks exchange tokens by all_to_all, or by sends and receives. A rank whose experts are chosen
//! more often receives more, computes longer, and is late to the exchange back.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::Step;
use tprof_rank::collectives::Operation;
use tprof_rank::meetings::step_of;
use tprof_rank::roles::Role;

use super::arrivals::Arrival;
use super::tables::NOT_MET;

const NOT_RECORDED: &str = "the sizes that the rank received were not recorded";
const NO_STEPS: &str = "no step in which all ranks received tokens of known size was recorded";

/// What a rank exchanged with the ranks of its experts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpertExchanges {
    /// Number of exchanges, both of tokens and of results.
    count: u64,
    /// Bytes that the rank received in them; `None` if one of them doesn't tell.
    received_bytes: Option<u64>,
    /// The same for each step.
    by_step: BTreeMap<u64, Option<u64>>,
}

impl ExpertExchanges {
    /// Sums up the exchanges of a rank. `steps_of_work` has the step of each piece of work.
    pub fn of(
        operations: &[Operation],
        steps: &[Step],
        steps_of_work: &[Option<u32>],
    ) -> ExpertExchanges {
        let mut all = ExpertExchanges { received_bytes: Some(0), ..ExpertExchanges::default() };
        let is_exchange =
            |of: &&Operation| of.name.contains("all_to_all") || !of.messages.is_empty();
        for of in operations.iter().filter(|of| of.role == Role::Expert).filter(is_exchange) {
            let add = |sum: Option<u64>| sum?.checked_add(of.received_bytes?);
            all.count += 1;
            all.received_bytes = add(all.received_bytes);
            if let Some(step) = step_of(of, steps, steps_of_work) {
                let of_step = all.by_step.entry(step).or_insert(Some(0));
                *of_step = add(*of_step);
            }
        }
        all
    }
}

/// Makes the table; `None` if no rank exchanged tokens of experts. `arrivals` has the arrivals of
/// each rank at collectives of experts.
pub(super) fn table(
    parts: &[(&RankContext, &ExpertExchanges)],
    arrivals: &[Option<Arrival>],
) -> Option<Table> {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("exchanges", "exchanges", Unit::Count),
        Column::new("received_bytes", "received", Unit::Bytes),
        Column::new("of_mean", "of mean", Unit::Share),
        Column::new("highest_of_mean", "at most", Unit::Share),
        Column::new("last", "came last", Unit::Count),
        Column::new("waited_ns", "waited", Unit::Duration),
    ];
    let mut table = Table::new("experts", "Exchanges of experts", columns).about(
        "received: bytes in all exchanges; of mean: of the ranks; at most: in the step in which it \
         was highest; waited: for the last rank, summed",
    );
    let exchanging = || parts.iter().zip(arrivals).filter(|((_, of), _)| of.count > 0);
    let highest = highest_shares(&exchanging().map(|((_, of), _)| *of).collect::<Vec<_>>());
    let all: Option<Vec<u64>> = exchanging().map(|((_, of), _)| of.received_bytes).collect();
    let mean = all.map(|all| all.iter().sum::<u64>() as f64 / all.len().max(1) as f64);
    for (((at, of), arrival), highest) in exchanging().zip(&highest) {
        let share = of.received_bytes.zip(mean).map(|(bytes, mean)| bytes as f64 / mean.max(1.0));
        let met = |of: fn(&Arrival) -> u64| Cell::known(arrival.as_ref().map(of), NOT_MET);
        table.row(vec![
            at.label.as_str().into(),
            of.count.into(),
            Cell::known(of.received_bytes, NOT_RECORDED),
            Cell::known(share, NOT_RECORDED),
            Cell::known(*highest, NO_STEPS),
            met(|of| of.last),
            met(|of| of.waited_ns),
        ]);
    }
    let has_rows = exchanging().next().is_some();
    has_rows.then_some(table)
}

/// Returns for each rank the highest share of its bytes in the mean of the ranks in one step; `None`
/// if there is no step in which the bytes of all ranks are known.
fn highest_shares(ranks: &[&ExpertExchanges]) -> Vec<Option<f64>> {
    let mut highest = vec![None; ranks.len()];
    let Some((first, others)) = ranks.split_first() else { return highest };
    for (step, bytes) in &first.by_step {
        let of_others = others.iter().map(|of| of.by_step.get(step).copied().flatten());
        let bytes: Option<Vec<u64>> = std::iter::once(*bytes).chain(of_others).collect();
        let Some(bytes) = bytes.filter(|bytes| bytes.iter().any(|bytes| *bytes > 0)) else {
            continue;
        };
        let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
        for (highest, bytes) in highest.iter_mut().zip(&bytes) {
            *highest = Some(highest.unwrap_or(0.0_f64).max(*bytes as f64 / mean));
        }
    }
    highest
}
