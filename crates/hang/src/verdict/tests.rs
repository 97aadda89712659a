use super::*;
use crate::state::*;

const SECOND: u64 = 1_000_000_000;

fn frame(function: &str, line: u32) -> FrameState {
    let file = if line > 0 { "/home/u/train.py" } else { "" };
    let layer = if line > 0 { Layer::Python } else { Layer::Native };
    let module = if line > 0 { "" } else { "/usr/lib/libc.so.6" };
    FrameState { function: function.into(), file: file.into(), line, module: module.into(), layer }
}

/// A thread that waits in a function of the C library, called at a line of the user's.
fn waits(tid: u32, innermost: &str, place: (&str, u32), kind: WaitKind) -> ThreadState {
    ThreadState {
        tid,
        name: "python".into(),
        state: 'S',
        wait: Some(Wait { kind, ..Wait::default() }),
        frames: vec![frame(innermost, 0), frame(place.0, place.1)],
        ..ThreadState::default()
    }
}

fn step(age_ns: u64) -> Option<StepState> {
    Some(StepState { number: 7, age_ns, usual_ns: Some(SECOND / 10) })
}

/// A rank that waits for its device, the last of its `entered` operations being an all-reduce.
fn in_nccl(rank: u32, entered: u64) -> RankState {
    let operation = |number| Operation {
        number,
        name: "all_reduce".into(),
        bytes: Some(64),
        age_ns: 9 * SECOND,
        ..Operation::default()
    };
    let group = GroupState {
        id: Some("7f".into()),
        size: Some(4),
        entered,
        recent: (entered.saturating_sub(2)..entered).map(operation).collect(),
        ..GroupState::default()
    };
    let thread = waits(100, "cudaStreamSynchronize", ("reduces", 20), WaitKind::Device);
    RankState {
        rank,
        host: "c1".into(),
        step: step(9 * SECOND),
        groups: vec![group],
        threads: vec![thread],
        ..RankState::default()
    }
}

/// A rank that reads a file and has entered this many operations.
fn reads(rank: u32, entered: u64) -> RankState {
    let thread = waits(100, "read", ("load", 41), WaitKind::Io);
    RankState { threads: vec![thread], ..in_nccl(rank, entered) }
}

fn of(ranks: Vec<RankState>) -> Verdict {
    judge(&[HostState { host: "c1".into(), ranks, ..HostState::default() }], 0)
}

fn place(verdict: &Verdict) -> (Option<u32>, Option<&str>, Option<u32>) {
    (verdict.rank, verdict.function.as_deref(), verdict.line)
}

#[test]
fn the_rank_that_has_not_entered_an_operation_is_late() {
    let verdict = of(vec![in_nccl(0, 8), in_nccl(1, 8), reads(2, 7), in_nccl(3, 8)]);
    assert_eq!(verdict.kind, Kind::LateRank);
    assert_eq!(place(&verdict), (Some(2), Some("load"), Some(41)));
    assert_eq!(
        verdict.text,
        "rank 2 (host c1) has not entered all_reduce 7 of group 7f: it is in `read` at load \
         (/home/u/train.py:41) and waits for a file, a pipe or the network, without a step or \
         operation for 9.00 s. 3 ranks wait for it"
    );
}

#[test]
fn a_rank_is_not_late_to_an_operation_that_it_has_entered() {
    // Rank 1 has put the operation on a stream, and reads a file meanwhile.
    let verdict = of(vec![in_nccl(0, 8), reads(1, 8)]);
    assert_eq!(verdict.kind, Kind::Unknown, "{verdict:?}");
}

#[test]
fn a_rank_that_computes_while_others_wait_is_late() {
    let mut late = reads(1, 7);
    let thread = ThreadState { state: 'R', wait: None, ..late.threads.remove(0) };
    late = RankState { threads: vec![thread], cpu_share: Some(1.0), ..late };
    let verdict = of(vec![in_nccl(0, 8), late]);
    assert_eq!((verdict.kind, verdict.rank), (Kind::LateRank, Some(1)));
}

#[test]
fn a_chain_of_groups_is_followed_to_the_rank_that_waits_for_nobody() {
    let in_group = |id: &str, state: RankState| {
        let mut group = state.groups[0].clone();
        group.id = Some(id.into());
        group
    };
    let mut first = in_nccl(0, 8);
    first.groups[0].recent.iter_mut().for_each(|operation| operation.age_ns = 12 * SECOND);
    // Rank 1 is late to rank 0's group, because it waits for rank 2 in another one.
    let mut second = in_nccl(1, 7);
    second.groups[0].recent.iter_mut().for_each(|operation| operation.age_ns = 11 * SECOND);
    second.groups.push(in_group("80", in_nccl(1, 3)));
    let third = RankState { groups: vec![in_group("80", in_nccl(2, 2))], ..reads(2, 2) };
    let verdict = of(vec![first, second, third]);
    assert_eq!((verdict.kind, verdict.rank), (Kind::LateRank, Some(2)), "{verdict:?}");
}

#[test]
fn different_operations_at_one_place_of_a_group_are_a_mismatch() {
    let mut other = in_nccl(1, 8);
    other.groups[0].recent[1].name = "broadcast".into();
    let verdict = of(vec![in_nccl(0, 8), other]);
    assert_eq!(verdict.kind, Kind::Mismatch);
    assert!(verdict.text.contains("is in all_reduce of 64 B"), "{}", verdict.text);
    assert!(verdict.text.contains("is in broadcast of 64 B"), "{}", verdict.text);
    let mut other = in_nccl(1, 8);
    other.groups[0].recent[1].bytes = Some(128);
    assert_eq!(of(vec![in_nccl(0, 8), other]).kind, Kind::Mismatch);
}

#[test]
fn the_minority_differs_and_late_ranks_are_listed() {
    let mut other = in_nccl(0, 8);
    other.groups[0].recent[1].name = "broadcast".into();
    let verdict = of(vec![other, in_nccl(1, 8), in_nccl(2, 8), in_nccl(3, 8)]);
    assert_eq!((verdict.kind, verdict.rank), (Kind::Mismatch, Some(0)));
    let right = "operation 7 of group 7f: rank 1 (host c1) (and 2 more: 2-3) is in all_reduce";
    assert!(verdict.text.contains(right), "{}", verdict.text);
    let verdict = of(vec![in_nccl(0, 8), reads(1, 7), reads(2, 7), reads(3, 7)]);
    assert!(verdict.text.starts_with("rank 1 (host c1) (and 2 more: 2-3) has not entered"));
}

#[test]
fn a_rank_that_has_ended_is_named_if_others_wait() {
    let ended = |signal, status| RankState {
        rank: 1,
        host: "c1".into(),
        end: Some(RankEnd { signal, status, age_ns: 5 * SECOND }),
        ..RankState::default()
    };
    let verdict = of(vec![in_nccl(0, 8), ended(Some(9), None)]);
    assert_eq!((verdict.kind, verdict.rank), (Kind::DeadRank, Some(1)));
    assert!(verdict.text.contains("was ended by SIGKILL 5.00 s ago"), "{}", verdict.text);
    assert_eq!(of(vec![in_nccl(0, 8), ended(None, Some(0))]).kind, Kind::DeadRank);
    // A rank that waits for nobody does not miss it.
    assert_eq!(of(vec![reads(0, 0), ended(None, Some(0))]).kind, Kind::Unknown);
    let goes_on = RankState { step: step(SECOND / 20), ..in_nccl(0, 8) };
    assert_eq!(of(vec![goes_on, ended(Some(9), None)]).kind, Kind::Healthy);
}

#[test]
fn all_ranks_in_one_operation_wait_for_the_network() {
    let all = || (0..4).map(|rank| in_nccl(rank, 8)).collect::<Vec<_>>();
    let verdict = of(all());
    assert_eq!((verdict.kind, verdict.rank), (Kind::Network, None), "{verdict:?}");
    // A rank of the group is on a host that did not answer.
    let host = HostState { host: "c1".into(), ranks: all(), ..HostState::default() };
    assert_eq!(judge(&[host], 1).kind, Kind::Unknown);
    assert_eq!(of(all().into_iter().take(3).collect()).kind, Kind::Unknown, "of a group of four");
}

#[test]
fn a_stopped_rank_holds_up_the_others() {
    let mut stopped = in_nccl(1, 8);
    stopped.threads[0].state = 'T';
    let verdict = of(vec![in_nccl(0, 8), stopped]);
    assert_eq!(place(&verdict), (Some(1), Some("reduces"), Some(20)));
    assert!(verdict.kind == Kind::LateRank && verdict.text.contains("is stopped"), "{verdict:?}");
}

#[test]
fn threads_that_wait_for_each_others_locks_are_in_a_deadlock() {
    let lock = |tid, kind, holder, line| {
        let mut thread = waits(tid, "pthread_mutex_lock", ("takes", line), kind);
        thread.wait = Some(Wait { kind, holder: Some(holder), ..Wait::default() });
        thread
    };
    let threads = |last| {
        let free = waits(1, "pthread_join", ("main", 9), WaitKind::Lock);
        vec![
            free,
            lock(2, WaitKind::Lock, 3, 50),
            lock(3, WaitKind::Gil, 4, 60),
            lock(4, WaitKind::Lock, last, 70),
        ]
    };
    let rank = |last| RankState { threads: threads(last), ..RankState::default() };
    let verdict = of(vec![rank(2)]);
    assert_eq!(
        (verdict.kind, place(&verdict)),
        (Kind::Deadlock, (Some(0), Some("takes"), Some(50)))
    );
    for line in [50, 60, 70] {
        assert!(verdict.text.contains(&format!("train.py:{line}")), "{}", verdict.text);
    }
    assert!(verdict.text.contains("Python's lock that thread 4 holds"), "{}", verdict.text);
    // The last holder waits for nobody.
    assert_eq!(of(vec![rank(1)]).kind, Kind::Unknown);
}

#[test]
fn a_rank_that_waits_for_its_device_alone_names_its_last_kernel() {
    let launch = |age_ns| Some(LaunchState { kernel: "spins".into(), age_ns });
    let rank = |age_ns| RankState { groups: Vec::new(), launch: launch(age_ns), ..in_nccl(0, 0) };
    let verdict = of(vec![rank(9 * SECOND)]);
    assert_eq!((verdict.kind, verdict.rank), (Kind::Kernel, Some(0)));
    assert!(
        verdict.text.contains("the last kernel, spins, was launched 9.00 s ago"),
        "{verdict:?}"
    );
    assert_eq!(of(vec![rank(SECOND / 2)]).kind, Kind::Healthy);
}

#[test]
fn the_oldest_kernel_that_has_not_ended_is_named_where_cupti_tells() {
    let launch = |kernel: &str| LaunchState { kernel: kernel.into(), age_ns: 9 * SECOND };
    let streams = Some(vec![StreamState { stream: Some(1), kernels: 4, oldest: launch("spins") }]);
    let launch = Some(launch("follows"));
    let rank = RankState { groups: Vec::new(), launch, streams, ..in_nccl(0, 0) };
    let verdict = of(vec![rank]);
    assert_eq!(verdict.kind, Kind::Kernel);
    let text = "the kernel spins, launched 9.00 s ago, has not ended (3 more wait behind it)";
    assert!(verdict.text.contains(text), "{}", verdict.text);
}

#[test]
fn a_rank_that_is_late_because_of_its_device_names_its_last_kernel() {
    // Rank 1 has done what all have, and waits for a kernel of its own.
    let launch = Some(LaunchState { kernel: "spins".into(), age_ns: 9 * SECOND });
    let of_two = |mut state: RankState| {
        state.groups[0].size = Some(2);
        state
    };
    let verdict = of([in_nccl(0, 8), RankState { launch, ..in_nccl(1, 7) }].map(of_two).into());
    assert_eq!((verdict.kind, verdict.rank), (Kind::Kernel, Some(1)), "{verdict:?}");
    assert!(verdict.text.contains("has not entered all_reduce 7"), "{}", verdict.text);
    assert!(verdict.text.contains("the last kernel, spins, was launched"), "{}", verdict.text);
}

/// A rank with operations of gloo: these are over, and perhaps one is open.
fn in_gloo(rank: u32, over: &[&str], open: Option<&str>) -> RankState {
    let operation = |(number, name): (usize, &&str)| Operation {
        number: number as u64,
        name: (*name).to_owned(),
        age_ns: 9 * SECOND,
        is_over: number < over.len(),
        ..Operation::default()
    };
    let recent: Vec<_> = over.iter().chain(open.as_ref()).enumerate().map(operation).collect();
    let (entered, finished) = (recent.len() as u64, Some(over.len() as u64));
    let group =
        GroupState { backend: Backend::Torch, entered, finished, recent, ..GroupState::default() };
    RankState { groups: vec![group], ..reads(rank, 0) }
}

#[test]
fn numbers_of_ranks_with_different_groups_are_not_compared() {
    let of = |ranks: &[(&[&str], Option<&str>)]| {
        let ranks = ranks.iter().enumerate();
        of(ranks.map(|(rank, (over, open))| in_gloo(rank as u32, over, *open)).collect()).kind
    };
    let (a, b): (&[&str], &[&str]) = (&["all_reduce", "barrier"], &["barrier", "all_reduce"]);
    assert_eq!(of(&[(a, Some("all_reduce")), (a, None)]), Kind::LateRank);
    assert_eq!(of(&[(a, Some("all_reduce")), (b, None)]), Kind::Unknown);
    assert_eq!(of(&[(a, Some("all_reduce")), (a, Some("barrier"))]), Kind::Mismatch);
    assert_eq!(of(&[(a, Some("all_reduce")), (b, Some("barrier"))]), Kind::Unknown);
    // A third rank is elsewhere, so the other two may wait for it in different groups.
    let three = [(a, Some("all_reduce")), (a, Some("barrier")), (a, None)];
    assert_eq!(of(&three), Kind::LateRank);
    assert_eq!(of(&[(a, Some("all_reduce")), (a, Some("all_reduce"))]), Kind::Network);
}

#[test]
fn a_rank_that_runs_is_not_certainly_in_its_last_operation() {
    // Of a running thread only Python's functions are known: it may spin in a wait for its device,
    // or evaluate.
    let runs = |rank, entered| {
        let mut state = reads(rank, entered);
        let mut thread = ThreadState { state: 'R', wait: None, ..state.threads.remove(0) };
        thread.frames.remove(0);
        RankState { threads: vec![thread], cpu_share: Some(1.0), ..state }
    };
    let all = (0..4).map(|rank| runs(rank, 8)).collect();
    assert_eq!(of(all).kind, Kind::Unknown);
    let ended = RankState { end: Some(RankEnd::default()), rank: 1, ..RankState::default() };
    let verdict = of(vec![runs(0, 8), ended]);
    assert_eq!(verdict.kind, Kind::Unknown);
    assert!(verdict.text.contains("Rank 1 has ended"), "{}", verdict.text);
    // What the others have entered and one has not is certain all the same.
    let verdict = of(vec![runs(0, 8), runs(1, 8), runs(2, 7), runs(3, 8)]);
    assert_eq!((verdict.kind, verdict.rank), (Kind::LateRank, Some(2)));
    // Ranks that launch kernels go on.
    let launches = |rank| {
        let launch = Some(LaunchState { kernel: "gemm".into(), age_ns: SECOND / 100 });
        RankState { launch, ..runs(rank, 8) }
    };
    assert_eq!(of(vec![launches(0), launches(1)]).kind, Kind::Healthy);
}

#[test]
fn ranks_that_go_on_are_healthy() {
    let at = |age_ns| RankState { step: step(age_ns), ..in_nccl(0, 8) };
    let verdict = of(vec![at(SECOND / 20), at(SECOND / 10)]);
    assert_eq!(
        (verdict.kind, verdict.text.as_str()),
        (Kind::Healthy, "steps go on, 100.0 ms each")
    );
    // A long evaluation: no step, but every rank computes.
    let evaluates = || {
        let thread = ThreadState { state: 'R', wait: None, ..reads(0, 8).threads.remove(0) };
        RankState {
            cpu_share: Some(0.9),
            threads: vec![thread],
            groups: Vec::new(),
            ..at(60 * SECOND)
        }
    };
    assert_eq!(of(vec![evaluates(), evaluates()]).kind, Kind::Healthy);
    // A checkpoint: every rank writes.
    let writes = || RankState { transferred_bytes: Some(1 << 30), ..reads(0, 8) };
    assert_eq!(of(vec![writes(), writes()]).kind, Kind::Healthy);
}

#[test]
fn a_process_that_waits_without_a_trace_is_unknown_with_its_place() {
    let thread = waits(1, "read", ("load", 41), WaitKind::Io);
    let verdict = of(vec![RankState { threads: vec![thread], ..RankState::default() }]);
    assert_eq!((verdict.kind, place(&verdict)), (Kind::Unknown, (Some(0), Some("load"), Some(41))));
    assert_eq!(of(Vec::new()).kind, Kind::Unknown);
}

/// Makes `count` ranks of groups of four, in each kind of standstill in which all ranks are looked
/// at.
fn standstills(count: u32) -> Vec<(&'static str, Vec<RankState>)> {
    let all = |of: &dyn Fn(u32) -> RankState| (0..count).map(of).collect::<Vec<_>>();
    let last = count - 1;
    let grouped = |mut state: RankState| {
        state.groups[0].id = Some(format!("{:x}", state.rank / 4));
        state
    };
    let unsized_one = |mut state: RankState| {
        state.groups[0].size = Some(count);
        state
    };
    let dumped = |rank| {
        let mut state = RankState { dump: Some(DumpFile::default()), ..in_nccl(rank, 8) };
        state.groups[0].size = Some(count + 1);
        state
    };
    let over: &[&str] = &["all_reduce", "barrier"];
    vec![
        ("all in one", all(&|rank| unsized_one(in_nccl(rank, 8)))),
        ("all in groups of four", all(&|rank| grouped(in_nccl(rank, 8)))),
        ("late", all(&|rank| in_nccl(rank, if rank == last { 7 } else { 8 }))),
        ("one went on", all(&|rank| in_nccl(rank, if rank == 0 { 8 } else { 7 }))),
        ("chains", all(&|rank| in_nccl(rank, 100 + u64::from(rank)))),
        ("dumps", all(&dumped)),
        ("gloo", all(&|rank| in_gloo(rank, over, Some("all_reduce")))),
        ("gloo, late", all(&|rank| in_gloo(rank, over, (rank < last).then_some("barrier")))),
        ("gloo, mismatch", {
            let name = |rank| if rank == last { "broadcast" } else { "barrier" };
            all(&|rank| in_gloo(rank, over, Some(name(rank))))
        }),
    ]
}

#[test]
fn the_number_of_comparisons_grows_no_faster_than_the_number_of_ranks() {
    let comparisons_of = |ranks: Vec<RankState>| {
        let hosts = [HostState { ranks, ..HostState::default() }];
        crate::situation::comparisons::of(|| _ = judge(&hosts, 0))
    };
    for ((what, few), (_, many)) in standstills(64).into_iter().zip(standstills(1024)) {
        let (few, many) = (comparisons_of(few), comparisons_of(many));
        assert!(many <= 16 * few.max(64) * 2, "{what}: {few} for 64 ranks, {many} for 1,024");
    }
}

#[test]
fn one_of_many_ranks_without_groups_that_differs_is_blamed() {
    let over: &[&str] = &["all_reduce"];
    let name = |rank| if rank == 2 { "broadcast" } else { "barrier" };
    let verdict = of((0..5).map(|rank| in_gloo(rank, over, Some(name(rank)))).collect());
    assert_eq!((verdict.kind, verdict.rank), (Kind::Mismatch, Some(2)), "{verdict:?}");
    assert!(verdict.text.contains("rank 0 (host c1) (and 3 more: 1, 3-4)"), "{}", verdict.text);
}
