//! Compares how long ranks are in operations between ranks: the one that comes last waits least.

use tprof_trace::model::HistoryRow;

/// Returns the time of a row that the rank spent in operations between ranks, ns: its devices, as
/// their mean, or else the host. `None` if it isn't known.
pub fn meeting_ns(row: &HistoryRow) -> Option<u64> {
    let of_devices = row.communication_ns.zip(row.devices);
    let of_devices = of_devices.map(|(ns, devices)| ns / u64::from(devices.max(1)));
    of_devices.filter(|ns| *ns > 0).or(row.collective_ns)
}

/// Returns for each rank by how much longer the others are in operations between ranks, as their
/// median. `waits` has the share of the steps that each rank is in them. A rank of which that isn't
/// known has no value, and neither has a rank alone.
pub fn lateness(waits: &[Option<f64>]) -> Vec<Option<f64>> {
    let known = waits.iter().flatten().count();
    if known < 2 {
        return vec![None; waits.len()];
    }
    let of_others = |at: usize| {
        let others = waits.iter().enumerate().filter(|of| of.0 != at);
        let mut others: Vec<f64> = others.filter_map(|(_, share)| *share).collect();
        others.sort_unstable_by(f64::total_cmp);
        others[others.len() / 2]
    };
    // The median of the others differs from that of all only where there are few ranks.
    let of_all = (known > 16).then(|| of_others(usize::MAX));
    let late = |(at, own): (usize, &Option<f64>)| {
        own.map(|own| of_all.unwrap_or_else(|| of_others(at)) - own)
    };
    waits.iter().enumerate().map(late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_waits_least_is_late_and_one_rank_is_not() {
        let late = lateness(&[Some(0.5), None, Some(0.1), Some(0.4)]);
        let rounded: Vec<_> = late.iter().map(|of| of.map(|of| (of * 10.0).round())).collect();
        assert_eq!(rounded, [Some(-1.0), None, Some(4.0), Some(1.0)]);
        assert_eq!(lateness(&[Some(0.5), None]), [None, None]);
    }

    #[test]
    fn a_rank_without_communicating_kernels_waits_on_the_host() {
        let mut row = HistoryRow { collective_ns: Some(7), ..HistoryRow::default() };
        assert_eq!(meeting_ns(&row), Some(7));
        (row.communication_ns, row.devices) = (Some(30), Some(2));
        assert_eq!(meeting_ns(&row), Some(15));
        row.communication_ns = Some(0);
        assert_eq!(meeting_ns(&row), Some(7));
    }
}
