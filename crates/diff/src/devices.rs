//! Collects the time of a side's devices in its steps, divided as in `report gpu-time`: work, and
//! idle time by cause.

use tprof_facts::copies::direction;
use tprof_metrics::gpu::gpu_time::{Waterfall, of_devices};
use tprof_rank::base::intervals::Cover;
use tprof_rank::{RankTrace, Step};

use super::amount::{Amount, HostNameKind};
use super::causes::AmountName;

/// Returns the times of a rank's devices by part and cause, one list for each device.
pub(super) fn amounts(rank: &RankTrace<'_>, steps: &[Step]) -> Vec<Vec<(AmountName, Amount)>> {
    let times = Cover::of(steps.iter().map(Step::time));
    let compared = (!steps.is_empty()).then_some(&times);
    of_devices(rank, compared, |_, waterfall, _| of_device(waterfall))
}

fn of_device(waterfall: &Waterfall) -> Vec<(AmountName, Amount)> {
    let amount = |name: String, part: &str, ns: u64| {
        let amount = Amount { value: ns as f64, ..Amount::default() };
        ((HostNameKind::Device, name, part.to_owned()), amount)
    };
    let mut all = vec![
        amount("compute".to_owned(), "compute", waterfall.compute_ns),
        amount("communication".to_owned(), "communication", waterfall.communication_ns),
    ];
    for (kind, ns) in &waterfall.copies {
        all.push(amount(format!("copies: {}", direction(*kind)), "copies", *ns));
    }
    for (cause, ns) in waterfall.causes() {
        all.push(amount(format!("idle: {}", cause.short()), cause.key(), ns));
    }
    all.retain(|(_, amount)| amount.value > 0.0);
    all
}
