//! Lists pairs of SQL views and reports that must have the same figures, whichever engine runs the
//! query.

use std::collections::BTreeMap;

/// Rows: from their keys to their figures.
pub type Rows = BTreeMap<Vec<String>, Vec<f64>>;

/// A query on views, and the table of a report that has the same rows.
pub struct Pair {
    /// The query on the views.
    pub query: &'static str,
    /// The number of key columns, which come first; the others are figures.
    pub keys: usize,
    /// Kind of the report, and key of its table.
    pub report: (&'static str, &'static str),
    /// The columns of the query's result, in order.
    pub columns: &'static [&'static str],
    /// Whether the view covers the whole run. The report covers only the steps, if there are any.
    pub of_whole_run: bool,
    /// A column and its value in rows that only the report has.
    pub leaves_out: Option<(&'static str, &'static str)>,
}

/// All pairs of a view and a report. The steps of `step_times` are the host's.
pub const PAIRS: &[Pair] = &[
    Pair {
        query: "SELECT rank, name, class, runs, total_ns, min_ns, max_ns, mean_ns FROM kernel_stats",
        keys: 3,
        report: ("kernels", "by_rank"),
        columns: &["rank", "name", "class", "count", "total_ns", "min_ns", "max_ns", "mean_ns"],
        of_whole_run: true,
        leaves_out: Some(("class", "memory")),
    },
    Pair {
        query: "SELECT rank, device, window_ns, compute_ns, overlapped_ns, exposed_ns, copies_ns, idle_ns \
                FROM breakdown",
        keys: 2,
        report: ("breakdown", "breakdown"),
        columns: &[
            "rank",
            "device",
            "window_ns",
            "compute_ns",
            "overlapped_ns",
            "exposed_ns",
            "copies_ns",
            "idle_ns",
        ],
        of_whole_run: true,
        leaves_out: None,
    },
    Pair {
        query: "SELECT rank, device, communication_ns, hidden_ns, exposed_ns FROM comm_overlap",
        keys: 2,
        report: ("overlap", "overlap"),
        columns: &["rank", "device", "communication_ns", "hidden_ns", "exposed_ns"],
        of_whole_run: true,
        leaves_out: None,
    },
    Pair {
        query: "SELECT rank, device, stream, sum(length_ns), \
                sum(CASE WHEN cause = 'host wait' THEN length_ns ELSE 0 END), \
                sum(CASE WHEN cause = 'kernel wait' THEN length_ns ELSE 0 END), \
                sum(CASE WHEN cause = 'other' THEN length_ns ELSE 0 END), \
                sum(CASE WHEN cause = 'launch not seen' THEN length_ns ELSE 0 END) \
                FROM idle_gaps GROUP BY rank, device, stream",
        keys: 3,
        report: ("idle", "idle"),
        columns: &[
            "rank",
            "device",
            "stream",
            "idle_ns",
            "host_wait_ns",
            "kernel_wait_ns",
            "other_ns",
            "unknown_ns",
        ],
        of_whole_run: true,
        leaves_out: Some(("idle_ns", "0")),
    },
    Pair {
        query: "SELECT rank, call, count(*), sum(work), sum(call_ns), max(call_ns), max(delay_ns) FROM \
                (SELECT rank, process, call, start_ns, correlation, count(*) AS work, \
                 max(call_ns) AS call_ns, min(delay_ns) AS delay_ns FROM launch_delays \
                 GROUP BY rank, process, call, start_ns, correlation) each \
                GROUP BY rank, call",
        keys: 2,
        report: ("launches", "launches"),
        columns: &["rank", "name", "calls", "work", "call_total_ns", "call_max_ns", "delay_max_ns"],
        of_whole_run: true,
        leaves_out: None,
    },
    Pair {
        query: "SELECT rank, collectives, last, waited_ns, delay_ns, floor(late_ns * 1.0 / collectives) \
                FROM stragglers",
        keys: 1,
        report: ("stragglers", "late_arrivals"),
        columns: &["rank", "collectives", "last", "waited_ns", "delay_ns", "mean_late_ns"],
        of_whole_run: true,
        leaves_out: None,
    },
    Pair {
        query: "SELECT rank, device, allocator, max(bytes) FROM memory_curve \
                GROUP BY rank, device, allocator",
        keys: 3,
        report: ("device-memory", "pools"),
        columns: &["rank", "device", "allocator", "peak_bytes"],
        of_whole_run: false,
        leaves_out: None,
    },
    Pair {
        query: "SELECT rank, steps, median_ns FROM step_times",
        keys: 1,
        report: ("steps", "step_times"),
        columns: &["rank", "steps", "host_median_ns"],
        of_whole_run: false,
        leaves_out: None,
    },
    Pair {
        query: "SELECT function, sum(samples), sum(self_ns) FROM hot_functions GROUP BY function",
        keys: 1,
        report: ("cpu", "functions"),
        columns: &["function", "samples", "self_ns"],
        of_whole_run: false,
        leaves_out: Some(("self_ns", "0")),
    },
    Pair {
        query: "SELECT operator, sum(runs), sum(flops), sum(device_ns) FROM roofline GROUP BY operator",
        keys: 1,
        report: ("flops", "operators"),
        columns: &["operator", "runs", "flops", "device_ns"],
        of_whole_run: false,
        leaves_out: None,
    },
];

/// Returns rows by key. Each input row has the texts of all keys, and its figures. Known figures of
/// rows with the same key are summed; an unknown figure is NaN.
pub fn rows(all: impl Iterator<Item = (Vec<String>, Vec<f64>)>) -> Rows {
    let mut rows = Rows::new();
    for (key, figures) in all {
        // Reports print labels such as `rank 0` in place of numbers.
        let plain = |text: String| text.strip_prefix("rank ").map_or(text.clone(), str::to_owned);
        let key: Vec<String> = key.into_iter().map(plain).collect();
        let sums = rows.entry(key).or_insert_with(|| vec![f64::NAN; figures.len()]);
        for (sum, figure) in sums.iter_mut().zip(figures) {
            *sum = match (sum.is_nan(), figure.is_nan()) {
                (true, _) => figure,
                (_, true) => *sum,
                _ => *sum + figure,
            };
        }
    }
    rows
}

/// Fails if a view and a report have different rows.
pub fn assert_same(what: &str, pair: &Pair, viewed: &Rows, reported: &Rows) {
    let (names, of_view): (Vec<_>, Vec<_>) = (reported.keys().collect(), viewed.keys().collect());
    assert_eq!(of_view, names, "{what}: {}", pair.query);
    for (key, figures) in reported {
        // Reports round means, so the figures may differ slightly.
        let near = |(a, b): (&f64, &f64)| {
            (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(1.0) + 0.5
        };
        let same = figures.iter().zip(&viewed[key]).all(near);
        assert!(same, "{what}: {}: {key:?}: {figures:?} and {:?}", pair.query, viewed[key]);
    }
}
