//! Turns simulated jobs into what is recorded of them.

use std::collections::BTreeMap;

use tprof_fixture::exchanges::{Act, Operation, Simulated};
use tprof_rank::messages::{Message, NumberedMessage};

use super::{OwnPlace, RankSteps, StepMeeting, StepMessage};

/// Returns the steps of each rank as they are recorded. `clocks` has the name of each rank's
/// host and what its clock is ahead, ns; ranks beyond its end are on the first host.
pub fn recorded(job: &Simulated, clocks: &[(&str, u64)]) -> Vec<RankSteps> {
    let all = job.run();
    let of_rank = |(rank, operations): (usize, &Vec<Operation<'_>>)| {
        let (host, ahead_ns) = clocks.get(rank).copied().unwrap_or(("host", 0));
        let mut steps = RankSteps {
            host: host.to_owned(),
            stride: 1,
            steps_ns: operations.last().map_or(0, |of| of.end_ns),
            ..RankSteps::default()
        };
        let mut numbers: BTreeMap<(u32, u32, bool), u32> = BTreeMap::new();
        let mut meets = 0;
        for Operation { step, start_ns, end_ns, before_ns, act } in operations {
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
                for (from, to, is_send) in sends.chain(from.iter().map(|of| (*of, own, false))) {
                    let next = numbers.entry((from, to, is_send)).or_default();
                    let message =
                        Message { communicator: None, from, to, is_send, bytes: Some(64) };
                    let way = u64::from(from) * 1000 + u64::from(to);
                    steps.messages.push(StepMessage {
                        meeting: steps.meetings.len() as u32,
                        is_on_device: false,
                        is_between_like: false,
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
