//! Measures when the host and the GPUs of a rank were busy: both, only one of them, or neither.
//!
//! The host is busy while at least one thread is in an operator, a Python function, or a call of
//! the runtime or the driver. A call that waits for a device counts too, because the thread can do
//! nothing else. Ranges of the program don't count, because a thread may do nothing inside one.
//! Calls alone don't show what the host does between them. So without operators and Python
//! functions, the host's activity is unknown.

use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::{HostSpan, Needs, RankTrace};
use tprof_trace::model::SpanKind;

/// The tables that the computation reads.
pub const NEEDS: Needs = Needs::CALLS.and(Needs::OPERATORS).and(Needs::spans(SpanKind::Python));

const UNKNOWN: &str = "no operators were recorded, nor Python functions; the host's work \
                       between calls is unknown";

/// The time in which a rank's host and devices were busy, ns. The window is the steps of its
/// devices; without steps, it goes from the first to the last event of host or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDeviceOverlap {
    /// Length of the window.
    pub window_ns: u64,
    /// Time in which some device worked, ns.
    pub gpu_ns: u64,
    /// The parts of the window that depend on the host; `None` if the host's activity is unknown.
    pub host: Option<HostOverlapParts>,
}

/// The busy times of the host, and the four parts of the window (`gpu_only_ns` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOverlapParts {
    /// Time in which some thread was busy, ns.
    pub host_ns: u64,
    /// Time in which host and devices were busy, ns.
    pub both_ns: u64,
    /// Time in which only the host was busy, ns.
    pub host_only_ns: u64,
    /// Time in which only devices were busy, ns.
    pub gpu_only_ns: u64,
    /// Time in which neither was busy, ns.
    pub neither_ns: u64,
}

/// Measures a rank; returns `None` if it has no device work.
pub fn of_rank(rank: &RankTrace<'_>) -> Option<HostDeviceOverlap> {
    let gpu = Cover::any(rank.devices().iter().map(|one| &one.any));
    let of_gpu = gpu.span()?;
    let steps = rank.device_windows().into_iter().filter(|window| window.steps > 0);
    let steps = Cover::any(steps.map(|one| one.judged));
    let judged = |cover: Cover| if steps.is_empty() { cover } else { cover.intersection(&steps) };
    let window = |hull: u64| if steps.is_empty() { hull } else { steps.length() };
    let gpu = judged(gpu);
    let gpu_ns = gpu.length();
    let ranges =
        || [SpanKind::Operator, SpanKind::Python].iter().flat_map(|kind| rank.spans(*kind));
    if ranges().next().is_none() {
        return Some(HostDeviceOverlap { window_ns: window(of_gpu.length()), gpu_ns, host: None });
    }
    let host: Cover = ranges().chain(&rank.calls).map(HostSpan::interval).collect();
    let of_host = host.span().unwrap_or(of_gpu);
    let window_ns = Interval::hull([of_gpu, of_host].into_iter()).map_or(0, Interval::length);
    let (window_ns, host) = (window(window_ns), judged(host));
    let (host_ns, both_ns) = (host.length(), host.shared(&gpu));
    let host = HostOverlapParts {
        host_ns,
        both_ns,
        host_only_ns: host_ns - both_ns,
        gpu_only_ns: gpu_ns - both_ns,
        neither_ns: window_ns - (host_ns + gpu_ns - both_ns),
    };
    Some(HostDeviceOverlap { window_ns, gpu_ns, host: Some(host) })
}

/// Returns the table, with a row for each rank.
pub(crate) fn table<'a>(
    rows: impl Iterator<Item = (&'a RankContext, HostDeviceOverlap)>,
    empty: &'static str,
) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("window_ns", "time", Unit::Duration),
        Column::new("both_share", "both", Unit::Share),
        Column::new("host_only_share", "host only", Unit::Share),
        Column::new("gpu_only_share", "GPU only", Unit::Share),
        Column::new("neither_share", "neither", Unit::Share),
        Column::data("host_ns", Unit::Duration),
        Column::data("gpu_ns", Unit::Duration),
        Column::data("both_ns", Unit::Duration),
        Column::data("host_only_ns", Unit::Duration),
        Column::data("gpu_only_ns", Unit::Duration),
        Column::data("neither_ns", Unit::Duration),
    ];
    let mut table = Table::new("host_and_gpu", "Host and GPU at once", columns)
        .about(
            "in the steps, else from the first to the last activity of either; host: a thread is in \
             an operator, Python function or call; GPU: a device works",
        )
        .empty(empty);
    for (at, row) in rows {
        let part = |of: fn(&HostOverlapParts) -> u64| row.host.as_ref().map(of);
        let share = |of: fn(&HostOverlapParts) -> u64| {
            Cell::known(part(of).map(|ns| ns as f64 / row.window_ns.max(1) as f64), UNKNOWN)
        };
        let ns = |of: fn(&HostOverlapParts) -> u64| Cell::known(part(of), UNKNOWN);
        table.row(vec![
            at.label.as_str().into(),
            row.window_ns.into(),
            share(|host| host.both_ns),
            share(|host| host.host_only_ns),
            share(|host| host.gpu_only_ns),
            share(|host| host.neither_ns),
            ns(|host| host.host_ns),
            row.gpu_ns.into(),
            ns(|host| host.both_ns),
            ns(|host| host.host_only_ns),
            ns(|host| host.gpu_only_ns),
            ns(|host| host.neither_ns),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Kernel, Span};

    use super::*;

    const ALL: Needs = Needs::ALL;

    /// Makes a rank from operators, calls and kernels, each as (start, length). Consecutive rows
    /// lie on different threads and devices.
    fn of(
        operators: &[(u64, u64)],
        calls: &[(u64, u64)],
        kernels: &[(u64, u64)],
    ) -> Option<HostDeviceOverlap> {
        let mut trace = Fixture::new();
        for (at, &(start_ns, duration_ns)) in operators.iter().enumerate() {
            let kind = if at % 2 == 0 { SpanKind::Operator } else { SpanKind::Python };
            let row =
                Span { start_ns, duration_ns, kind, thread: at as u32 % 3, ..Span::default() };
            trace.span(row, "work");
        }
        for &(start_ns, duration_ns) in calls {
            trace.call(0, start_ns, duration_ns, "cudaLaunchKernel", 0);
        }
        // A range that the program names doesn't count as work.
        let kind = SpanKind::Annotation;
        trace.span(Span { start_ns: 0, duration_ns: 500, kind, ..Span::default() }, "epoch");
        for (at, &(start_ns, duration_ns)) in kernels.iter().enumerate() {
            let device = at as u32 % 2;
            trace.kernel(Kernel { start_ns, duration_ns, device, ..Kernel::default() }, "gemm");
        }
        let file = trace.finish();
        of_rank(&RankTrace::load(&file, ALL))
    }

    #[test]
    fn the_four_parts_follow_from_who_was_busy() {
        let found = of(&[(0, 50)], &[(40, 20)], &[(55, 25), (90, 10)]).unwrap();
        assert_eq!((found.window_ns, found.gpu_ns), (100, 35));
        let host = found.host.unwrap();
        assert_eq!((host.host_ns, host.both_ns), (60, 5));
        assert_eq!((host.host_only_ns, host.gpu_only_ns, host.neither_ns), (55, 30, 10));
    }

    #[test]
    fn calls_alone_leave_the_host_unknown() {
        let found = of(&[], &[(0, 50)], &[(10, 20)]).unwrap();
        assert_eq!(found, HostDeviceOverlap { window_ns: 20, gpu_ns: 20, host: None });
        assert_eq!(of(&[(0, 50)], &[], &[]), None);
    }

    fn rows(least: usize) -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..100, 1_u64..20), least..8)
    }

    /// Returns a bit mask of the nanoseconds that lie in any of these rows.
    fn bits(rows: &[(u64, u64)]) -> u128 {
        let of = |(start, length): &(u64, u64)| (*start..start + length).map(|at| 1_u128 << at);
        rows.iter().flat_map(of).fold(0, |all, one| all | one)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn the_parts_add_up_to_the_window(operators in rows(1), calls in rows(0), kernels in rows(1)) {
            let found = of(&operators, &calls, &kernels).unwrap();
            let parts = found.host.unwrap();
            let (host, gpu) = (bits(&operators) | bits(&calls), bits(&kernels));
            let all = host | gpu;
            let window = u128::BITS - all.leading_zeros() - all.trailing_zeros();
            let count = |bits: u128| u64::from(bits.count_ones());
            prop_assert_eq!(found.window_ns, u64::from(window));
            prop_assert_eq!((parts.host_ns, found.gpu_ns), (count(host), count(gpu)));
            prop_assert_eq!(parts.both_ns, count(host & gpu));
            prop_assert_eq!(parts.host_only_ns, count(host & !gpu));
            prop_assert_eq!(parts.gpu_only_ns, count(gpu & !host));
            let sum = parts.both_ns + parts.host_only_ns + parts.gpu_only_ns + parts.neither_ns;
            prop_assert_eq!(sum, found.window_ns);
        }
    }
}
