//! What devices did outside of the steps: reports on devices are of the steps where there are any, and say
//! what they leave out.

use tprof_facts::units::{count, duration};

use crate::base::intervals::Interval;
use crate::document::{Cell, Column, RankAt, Table, Unit};
use crate::rank::{Busy, Class, DeviceWindow, RankTrace};

/// Kernels, copies and memsets of a rank that began outside of its devices' steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideWork {
    /// Whether the rank has steps: only then is anything left out.
    pub has_steps: bool,
    /// All that were recorded.
    pub all: u64,
    /// How many kernels and copies began outside of the steps.
    pub outside: u64,
    /// The sum of their durations.
    pub outside_ns: u64,
    /// Whether any of those outside communicates.
    pub communicates: bool,
}

impl OutsideWork {
    /// Of a rank.
    pub fn of(rank: &RankTrace<'_>) -> OutsideWork {
        let has_steps = rank.device_windows().iter().any(|window| window.steps > 0);
        let mut found =
            OutsideWork { has_steps, all: rank.work.len() as u64, ..OutsideWork::default() };
        let outside = rank.work.iter().zip(rank.is_judged()).filter(|(_, is_judged)| !is_judged);
        for (row, _) in outside {
            found.outside += 1;
            found.outside_ns += row.duration_ns;
            found.communicates |= row.class == Class::Communication;
        }
        found
    }
}

/// What reports say that leave out what ran outside of the steps; nothing where no rank has steps.
pub fn note(ranks: impl IntoIterator<Item = OutsideWork>) -> Vec<String> {
    let mut sum = OutsideWork::default();
    for of in ranks {
        sum.has_steps |= of.has_steps;
        sum.all += of.all;
        sum.outside += of.outside;
        sum.outside_ns += of.outside_ns;
    }
    let left_out = || {
        format!(
            "of the steps: {} of {} kernels and copies, {} in all, ran before, between or after them (`tprof \
             report breakdown` has their time)",
            count(sum.outside),
            count(sum.all),
            duration(sum.outside_ns)
        )
    };
    match (sum.has_steps, sum.outside) {
        (false, _) => Vec::new(),
        (true, 0) => vec!["of the steps; no kernel or copy ran outside of them".to_owned()],
        (true, _) => vec![left_out()],
    }
}

/// A part of a device's time outside of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePart {
    /// Which part of the recording: before, between or after the steps.
    pub name: &'static str,
    /// How long that part lasted, ns.
    pub window_ns: u64,
    /// Of it, when the device did anything.
    pub busy_ns: u64,
}

/// The parts of a device's time outside of its steps; nothing where all its time is judged.
pub fn parts(busy: &Busy, window: &DeviceWindow) -> Vec<OutsidePart> {
    if window.is_whole() {
        return Vec::new();
    }
    let within = |interval| busy.any.length_within(interval);
    let part = |name, interval: Interval| OutsidePart {
        name,
        window_ns: interval.length(),
        busy_ns: within(interval),
    };
    let between = window.between();
    let between = OutsidePart {
        name: "between steps",
        window_ns: between.length(),
        busy_ns: between.shared(&busy.any),
    };
    let [before, after] = [window.before(), window.after()];
    let all = [part("before the first step", before), between, part("after the last step", after)];
    all.into_iter().filter(|part| part.window_ns > 0).collect()
}

/// These parts of all devices.
pub fn table(rows: &[(&RankAt, Option<u32>, OutsidePart)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::device(rows.iter().map(|(_, device, _)| *device)),
        Column::new("part", "part", Unit::Text),
        Column::new("window_ns", "time", Unit::Duration),
        Column::new("busy_ns", "GPU busy", Unit::Duration),
        Column::new("busy_share", "busy", Unit::Share),
    ];
    let mut table = Table::new("outside_of_steps", "GPU time outside of the steps", columns)
        .about("from the first kernel or copy to the last, without the steps")
        .empty("devices did nothing before, between or after the steps, or there are none");
    for (at, device, part) in rows {
        table.row(vec![
            at.label.as_str().into(),
            Cell::applies(*device),
            part.name.into(),
            part.window_ns.into(),
            part.busy_ns.into(),
            (part.busy_ns as f64 / part.window_ns.max(1) as f64).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::Names;
    use crate::fixture::Fixture;
    use crate::gpu::{at_once, breakdown, idle, kernels, overlap, queue};
    use crate::rank::{Needs, WINDOW_NEEDS};
    use tprof_trace::TraceFile;
    use tprof_trace::model::{Kernel, Span, SpanKind};

    /// A warm-up of one kernel, two steps of a kernel and a collective each that follow each other on the
    /// device, and a kernel after them.
    fn file() -> TraceFile {
        let mut made = Fixture::new();
        for (number, start_ns) in [(1, 100), (2, 110)] {
            let row =
                Span { start_ns, duration_ns: 10, kind: SpanKind::Annotation, ..Span::default() };
            made.span(row, &format!("ProfilerStep#{number}"));
            let row = Span { start_ns, duration_ns: 8, ..Span::default() };
            made.span(Span { kind: SpanKind::Operator, ..row }, "aten::mm");
        }
        let runs = [
            (10, 20, 30, "init"),
            (101, 105, 155, "gemm"),
            (102, 155, 165, "ncclDevKernel_AllReduce"),
            (111, 175, 225, "gemm"),
            (112, 225, 235, "ncclDevKernel_AllReduce"),
            (300, 310, 330, "gemm"),
        ];
        for ((at, start_ns, end_ns, name), number) in runs.into_iter().zip(1..) {
            made.call(0, at, 1, "cudaLaunchKernel", number);
            let (duration_ns, correlation) = (end_ns - start_ns, Some(number));
            made.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, name);
        }
        made.finish()
    }

    #[test]
    fn reports_on_devices_are_of_the_steps_and_say_what_they_leave_out() {
        let file = file();
        let rank = RankTrace::load(&file, WINDOW_NEEDS | Needs::ALL_SPANS);
        let [time] = breakdown::of_rank(&rank)[..] else { panic!("not one device") };
        // From 100 to 235.
        assert_eq!((time.steps, time.window_ns), (2, 135));
        assert_eq!((time.compute_ns, time.exposed_ns, time.idle_ns), (100, 20, 15));
        let idle = idle::of_rank(&rank);
        assert_eq!((idle.streams[0].busy_ns, idle.streams[0].idle_ns), (120, [5, 10, 0, 0]));
        let outside = OutsideWork {
            has_steps: true,
            all: 6,
            outside: 2,
            outside_ns: 30,
            communicates: false,
        };
        assert_eq!(idle.outside, outside);
        let [of_kernels] = &overlap::of_rank(&rank, &Names::default())[..] else { panic!() };
        assert_eq!((of_kernels.communication_ns, of_kernels.window_ns), (20, 135));
        assert_eq!(of_kernels.kernels[0].count, 2);
        let found = kernels::of_rank(&rank, &Names::default());
        assert_eq!(found.combinations_ns[..2], [100, 20]);
        let runs: Vec<_> =
            found.kernels.iter().map(|row| (&*row.name, row.count, row.outside)).collect();
        let gemm = ("gemm", 2, [1, 20]);
        let expected = [gemm, ("ncclDevKernel_AllReduce", 2, [0, 0]), ("init", 0, [1, 10])];
        assert_eq!(runs, expected);
        let queues = queue::of_rank(&rank, false);
        let waits = [(101, 105), (102, 155), (111, 175), (112, 225)];
        let waited: u64 = waits.iter().map(|(from, to)| to - from).sum();
        assert!((queues.streams[0].mean * 135.0 - waited as f64).abs() < 1e-9);
        let at_once = at_once::of_rank(&rank).unwrap();
        assert_eq!((at_once.window_ns, at_once.gpu_ns), (135, 120));
        assert_eq!(at_once.host.map(|host| host.host_ns), Some(16));
        let text = &note([outside])[0];
        assert!(
            text.starts_with("of the steps: 2 of 6 kernels and copies, 30 ns in all"),
            "{text}"
        );
    }

    #[test]
    fn the_time_outside_of_the_steps_is_apart() {
        let file = file();
        let rank = RankTrace::load(&file, WINDOW_NEEDS);
        let found = parts(&rank.devices()[0], &rank.device_windows()[0]);
        let part = |name, window_ns, busy_ns| OutsidePart { name, window_ns, busy_ns };
        let expected = [part("before the first step", 80, 10), part("after the last step", 95, 20)];
        assert_eq!(found, expected);
        let whole = RankTrace::load(&file, Needs::WORK);
        assert_eq!(parts(&whole.devices()[0], &whole.device_windows()[0]), []);
        assert!(note([OutsideWork::of(&whole)]).is_empty());
    }
}
