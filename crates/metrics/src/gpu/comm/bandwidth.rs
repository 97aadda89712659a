//! Computes the bandwidth of collectives as nccl-tests defines it (in its `doc/PERFORMANCE.md`).

/// Returns the ratio of bus bandwidth to algorithm bandwidth for an operation among `ranks`: the
/// share of the message that each link must carry. Returns `None` if nccl-tests define no ratio.
pub fn bus_factor(operation: &str, ranks: u32) -> Option<f64> {
    let name = operation.trim_start_matches('_');
    let is = |prefix: &str| name.starts_with(prefix);
    let others = |ranks: u32| f64::from(ranks.saturating_sub(1)) / f64::from(ranks);
    match ranks {
        0 => None,
        _ if is("all_reduce") => Some(2.0 * others(ranks)),
        _ if ["all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"]
            .into_iter()
            .any(is) =>
        {
            Some(others(ranks))
        }
        _ if ["broadcast", "reduce", "send", "recv"].into_iter().any(is) => Some(1.0),
        _ => None,
    }
}

/// Returns bytes per second; `None` if the time is 0.
pub(super) fn per_second(bytes: u64, time_ns: f64) -> Option<f64> {
    (time_ns > 0.0).then(|| bytes as f64 / time_ns * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_factors_equal_those_of_nccl_tests() {
        assert_eq!(bus_factor("all_reduce", 8), Some(1.75));
        assert_eq!(bus_factor("all_reduce_coalesced", 2), Some(1.0));
        assert_eq!(bus_factor("_all_gather_base", 4), Some(0.75));
        assert_eq!(bus_factor("reduce_scatter", 4), Some(0.75));
        assert_eq!(bus_factor("all_to_all", 4), Some(0.75));
        assert_eq!(bus_factor("reduce", 4), Some(1.0));
        assert_eq!(bus_factor("broadcast", 4), Some(1.0));
        assert_eq!(bus_factor("send", 2), Some(1.0));
        assert_eq!(bus_factor("barrier", 8), None);
        assert_eq!(bus_factor("all_reduce", 0), None);
        assert_eq!(bus_factor("all_reduce", 1), Some(0.0), "a single rank sends nothing");
    }

    #[test]
    fn a_time_of_zero_has_no_bandwidth() {
        assert_eq!(per_second(1000, 1000.0), Some(1e9));
        assert_eq!(per_second(1000, 0.0), None);
    }
}
