//! Simulates ranks that send, receive and meet, with times that are known.

use std::collections::BTreeMap;

use tprof_rank::messages::{Message, NumberedMessage};

use super::{OwnPlace, RankSteps, StepMeeting, StepMessage};

/// What a rank does in each step, in order.
#[derive(Clone, Debug)]
pub enum Act {
    /// Computes for so long, ns.
    Compute(u64),
    /// Sends to these ranks and receives from these, in one operation.
    Exchange { to: Vec<u32>, from: Vec<u32> },
    /// Meets all ranks.
    Meet,
}

pub fn send(to: u32) -> Act {
    Act::Exchange { to: vec![to], from: Vec::new() }
}

pub fn receive(from: u32) -> Act {
    Act::Exchange { to: Vec::new(), from: vec![from] }
}

/// A job.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub steps: u64,
    /// For each rank what it does in each step.
    pub ranks: Vec<Vec<Act>>,
    /// Whether sends wait for their receivers.
    pub sends_wait: bool,
    /// Time from the last entry to the end of an operation, ns.
    pub transfer_ns: u64,
}

/// The operations of a rank: step, entry, end, time before it, and what it does.
type Operations<'j> = Vec<(u64, u64, u64, u64, &'j Act)>;

/// A rank that waits in an operation, or goes on.
#[derive(Clone, Copy, Default)]
struct Walker {
    step: u64,
    act: usize,
    now_ns: u64,
    before_ns: u64,
    is_in: bool,
}

impl Simulated {
    /// Runs the job, and returns the operations of each rank.
    fn run(&self) -> Vec<Operations<'_>> {
        let mut walkers = vec![Walker::default(); self.ranks.len()];
        let mut operations: Vec<Operations<'_>> = vec![Vec::new(); self.ranks.len()];
        // Entries of the sends and of the receives of each two ranks, and those of meetings, ns.
        let mut sides: BTreeMap<(u32, u32, bool), Vec<u64>> = BTreeMap::new();
        let mut met: Vec<Vec<u64>> = vec![Vec::new(); self.ranks.len()];
        loop {
            let mut goes_on = false;
            for (rank, walker) in walkers.iter_mut().enumerate() {
                while walker.step < self.steps {
                    let act = &self.ranks[rank][walker.act];
                    let own = rank as u32;
                    if let Act::Compute(ns) = act {
                        walker.now_ns += ns;
                        walker.before_ns += ns;
                    } else {
                        if !walker.is_in {
                            walker.is_in = true;
                            match act {
                                Act::Exchange { to, from } => {
                                    for other in to {
                                        let side = sides.entry((own, *other, true)).or_default();
                                        side.push(walker.now_ns);
                                    }
                                    for other in from {
                                        let side = sides.entry((*other, own, false)).or_default();
                                        side.push(walker.now_ns);
                                    }
                                }
                                _ => met[rank].push(walker.now_ns),
                            }
                        }
                        let Some(last_ns) = self.last_ns(own, act, &sides, &met) else { break };
                        let end_ns = last_ns.max(walker.now_ns) + self.transfer_ns;
                        let Walker { step, now_ns, before_ns, .. } = *walker;
                        operations[rank].push((step, now_ns, end_ns, before_ns, act));
                        (walker.now_ns, walker.before_ns, walker.is_in) = (end_ns, 0, false);
                    }
                    goes_on = true;
                    walker.act += 1;
                    if walker.act == self.ranks[rank].len() {
                        (walker.act, walker.step) = (0, walker.step + 1);
                    }
                }
            }
            if !goes_on {
                assert!(walkers.iter().all(|of| of.step == self.steps), "the job is stuck");
                return operations;
            }
        }
    }

    /// Returns the last of the entries for which a rank waits that is in an operation; `None` if
    /// some have not come.
    fn last_ns(
        &self,
        own: u32,
        act: &Act,
        sides: &BTreeMap<(u32, u32, bool), Vec<u64>>,
        met: &[Vec<u64>],
    ) -> Option<u64> {
        let Act::Exchange { to, from } = act else {
            let nth = met[own as usize].len() - 1;
            let entries = met.iter().map(|of| of.get(nth).copied());
            return entries.collect::<Option<Vec<u64>>>()?.into_iter().max();
        };
        let other = |from: u32, to: u32, is_own_send: bool| {
            let nth = sides[&(from, to, is_own_send)].len() - 1;
            sides.get(&(from, to, !is_own_send))?.get(nth).copied()
        };
        let senders = from.iter().map(|from| other(*from, own, false));
        let receivers = to.iter().filter(|_| self.sends_wait).map(|to| other(own, *to, true));
        let all = senders.chain(receivers).collect::<Option<Vec<u64>>>()?;
        Some(all.into_iter().max().unwrap_or(0))
    }

    /// Returns the mean time of the steps after the first, ns.
    pub fn step_ns(&self) -> f64 {
        let operations = self.run();
        let end = |step: u64| {
            let of_step = operations.iter().flatten().filter(|of| of.0 == step);
            of_step.map(|of| of.2).max().unwrap_or(0)
        };
        (end(self.steps - 1) - end(0)) as f64 / (self.steps - 1) as f64
    }

    /// Returns the steps of each rank as they are recorded. `clocks` has the name of each rank's
    /// host and what its clock is ahead, ns; ranks beyond its end are on the first host.
    pub fn recorded(&self, clocks: &[(&str, u64)]) -> Vec<RankSteps> {
        let all = self.run();
        let of_rank = |(rank, operations): (usize, &Operations<'_>)| {
            let (host, ahead_ns) = clocks.get(rank).copied().unwrap_or(("host", 0));
            let mut steps = RankSteps {
                host: host.to_owned(),
                stride: 1,
                steps_ns: operations.last().map_or(0, |of| of.2),
                ..RankSteps::default()
            };
            let mut numbers: BTreeMap<(u32, u32, bool), u32> = BTreeMap::new();
            let mut meets = 0;
            for (step, start_ns, end_ns, before_ns, act) in operations {
                let last = steps.meetings.last();
                let place = last.filter(|of| of.step == *step).map_or(0, |of| of.place + 1);
                let start_ns = start_ns + ahead_ns;
                let mut meeting = StepMeeting {
                    step: *step,
                    place,
                    start_ns,
                    before_ns: *before_ns,
                    since_entry_ns: last.map_or(0, |last| start_ns - last.start_ns),
                    duration_ns: end_ns + ahead_ns - start_ns,
                    ..StepMeeting::default()
                };
                let own = rank as u32;
                if let Act::Exchange { to, from } = act {
                    steps.messages_ns += meeting.duration_ns;
                    let sends = to.iter().map(|to| (own, *to, true));
                    for (from, to, is_send) in sends.chain(from.iter().map(|of| (*of, own, false)))
                    {
                        let next = numbers.entry((from, to, is_send)).or_default();
                        let message =
                            Message { communicator: None, from, to, is_send, bytes: Some(64) };
                        let way = u64::from(from) * 1000 + u64::from(to);
                        steps.messages.push(StepMessage {
                            meeting: steps.meetings.len() as u32,
                            is_on_device: false,
                            of: NumberedMessage { way, number: *next, message },
                        });
                        *next += 1;
                    }
                } else {
                    meets += 1;
                    meeting.id = Some(meets);
                }
                steps.meetings.push(meeting);
                let operator = format!("operator of rank {rank}");
                let code = OwnPlace { operator, ..OwnPlace::default() };
                if steps.places.len() <= place as usize {
                    steps.places.push(vec![(code, 0)]);
                }
                steps.places[place as usize][0].1 += before_ns;
            }
            steps
        };
        all.iter().enumerate().map(of_rank).collect()
    }
}

/// The schedule by which a pipeline computes the microbatches of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// All forward, then all backward.
    GPipe,
    /// Forward and backward in turn, once each stage has a microbatch.
    OneForwardOneBackward,
}

/// A pipeline whose stages meet at the end of each step. `stages` has the times that each stage
/// computes for a microbatch, forward and backward, ns.
pub fn pipeline(schedule: Schedule, stages: &[(u64, u64)], microbatches: usize) -> Simulated {
    let last = stages.len() - 1;
    let acts = |(stage, (forward_ns, backward_ns)): (usize, &(u64, u64))| {
        let forward = |acts: &mut Vec<Act>| {
            acts.extend((stage > 0).then(|| receive(stage as u32 - 1)));
            acts.push(Act::Compute(*forward_ns));
            acts.extend((stage < last).then(|| send(stage as u32 + 1)));
        };
        let backward = |acts: &mut Vec<Act>| {
            acts.extend((stage < last).then(|| receive(stage as u32 + 1)));
            acts.push(Act::Compute(*backward_ns));
            acts.extend((stage > 0).then(|| send(stage as u32 - 1)));
        };
        let ahead = match schedule {
            Schedule::GPipe => microbatches,
            Schedule::OneForwardOneBackward => (last - stage).min(microbatches),
        };
        let mut acts = Vec::new();
        (0..ahead).for_each(|_| forward(&mut acts));
        for _ in ahead..microbatches {
            forward(&mut acts);
            backward(&mut acts);
        }
        (0..ahead).for_each(|_| backward(&mut acts));
        acts.push(Act::Meet);
        acts
    };
    let ranks = stages.iter().enumerate().map(acts).collect();
    Simulated { steps: 20, ranks, sends_wait: false, transfer_ns: 0 }
}
