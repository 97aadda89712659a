//! Identifies the messages of a rank: sends and receives between two ranks.
//!
//! The n-th send of one rank to another is the n-th receive of the other rank from it, on the same
//! communicator: MPI and NCCL keep that order. Tags are not recorded, so messages of several tags
//! between two ranks are assumed to be received in the order in which they are sent.

use rustc_hash::FxHashMap;
use tprof_trace::model::{Collective, ProcessIndex};

use super::collectives::Operation;
use super::meetings::{Certainty, hash, step_of};
use super::step::Step;
use super::trace::RankTrace;

/// A message, from the side of one of its two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The communicator that numbers the two ranks; `None` if their numbers are those of the job.
    pub communicator: Option<u64>,
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// Whether this is the side of the rank that sends.
    pub is_send: bool,
    /// Size in bytes; `None` if unknown.
    pub bytes: Option<u64>,
}

/// A message with the name by which its two ranks match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedMessage {
    /// The way of the message, equal on both of its ranks: a hash of the communicator and the two
    /// ranks and, if messages are counted in each step anew, of the step.
    pub way: u64,
    /// The number of the message on its way, from 0.
    pub number: u32,
    /// The message that has this number.
    pub message: Message,
}

/// Returns the message of a send or receive; `None` for other operations, or if it is not known
/// which ranks exchange it.
pub(super) fn message_of(
    name: &str,
    communicator: Option<u64>,
    own: Option<u32>,
    peer: Option<u32>,
    bytes: Option<u64>,
) -> Option<Message> {
    let (own, peer) = (own?, peer?);
    match name {
        "send" => Some(Message { communicator, from: own, to: peer, is_send: true, bytes }),
        "recv" => Some(Message { communicator, from: peer, to: own, is_send: false, bytes }),
        _ => None,
    }
}

/// The rank's own numbers in its communicators.
pub(super) struct OwnNumbers {
    of_communicators: FxHashMap<(ProcessIndex, u64), u32>,
    /// The rank's number in the job, and the number of ranks of the job.
    in_job: Option<(u32, u32)>,
}

impl OwnNumbers {
    pub fn of(rank: &RankTrace<'_>) -> OwnNumbers {
        let own = rank.file.header().rank;
        let number = |row: &tprof_trace::model::Communicator| {
            let among = |own: u32| row.ranks.iter().position(|of| *of == u64::from(own));
            row.rank.or_else(|| u32::try_from(among(own?)?).ok())
        };
        let rows = rank.file.communicators().iter();
        let of_communicators =
            rows.filter_map(|row| Some(((row.process, row.communicator), number(row)?))).collect();
        OwnNumbers { of_communicators, in_job: own.zip(rank.world_size) }
    }

    /// Returns the messages of operations that ran in one kernel; empty if they are not all known.
    pub fn messages(&self, rank: &RankTrace<'_>, group: &[&Collective]) -> Vec<Message> {
        let message = |row: &&Collective| {
            let key = (row.process, row.communicator?);
            let own = self.of_communicators.get(&key).copied().or_else(|| {
                let (own, size) = self.in_job?;
                (row.group_size == Some(size)).then_some(own)
            });
            message_of(rank.name(row.name), row.communicator, own, row.peer, row.bytes)
        };
        group.iter().map(message).collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns the rank's own number in a group of so many ranks on the host, of which only the size
    /// is recorded. A group of all ranks is assumed to number them as the job does.
    pub fn on_host(&self, ranks: Option<u32>) -> Option<u32> {
        self.in_job.filter(|(_, size)| ranks == Some(*size)).map(|(own, _)| own)
    }
}

/// Returns the operations that consist of messages, in order, each with the number of its step and
/// its messages.
pub fn numbered<'o>(
    rank: &RankTrace,
    operations: &'o [Operation],
    steps: &[Step],
    steps_of_work: &[Option<u32>],
) -> Vec<(&'o Operation, Option<u64>, Vec<NumberedMessage>)> {
    let mut counts: FxHashMap<(u64, bool), u32> = FxHashMap::default();
    let is_counted_by_step = Certainty::of(rank).is_counted_by_step();
    let mut all: Vec<&Operation> = operations.iter().filter(|of| !of.messages.is_empty()).collect();
    all.sort_by_key(|of| (of.start_ns, of.duration_ns));
    let of_operation = |operation: &'o Operation| {
        let step = step_of(operation, steps, steps_of_work);
        let counted_in = step.filter(|_| is_counted_by_step);
        let number = |message: &Message| {
            let Message { communicator, from, to, is_send, .. } = *message;
            let way = hash(&(communicator, from, to, counted_in));
            let next = counts.entry((way, is_send)).or_default();
            *next += 1;
            NumberedMessage { way, number: *next - 1, message: *message }
        };
        let messages = operation.messages.iter().map(number).collect();
        (operation, step, messages)
    };
    all.into_iter().map(of_operation).collect()
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Communicator, Kernel};

    use super::*;
    use crate::rank::Needs;
    use crate::rank::collectives::operations;

    /// Returns the messages of the operations of a rank whose number in its communicator is 2. Each
    /// list is a kernel: name and peer of its rows.
    fn messages_of(kernels: &[&[(&str, Option<u32>)]]) -> Vec<Vec<NumberedMessage>> {
        let mut trace = Fixture::new();
        let row = Communicator { communicator: 5, rank: Some(2), ..Communicator::default() };
        trace.writer.communicator(&row);
        for (at, rows) in (1_u64..).zip(kernels) {
            let kernel = Kernel {
                start_ns: at * 100,
                duration_ns: 50,
                correlation: Some(at),
                ..Kernel::default()
            };
            trace.kernel(kernel, "ncclDevKernel_SendRecv");
            for (name, peer) in *rows {
                let name = trace.name(name);
                trace.collectives.push(Collective {
                    name,
                    peer: *peer,
                    communicator: Some(5),
                    correlation: Some(at),
                    ..Collective::default()
                });
            }
        }
        let file = trace.finish();
        let rank =
            RankTrace::load(&file, Needs::WORK | Needs::CALLS | Needs::COLLECTIVES | Needs::STEPS);
        let (operations, _) = operations(&rank);
        let steps_of_work = vec![None; rank.work.len()];
        let all = numbered(&rank, &operations, &[], &steps_of_work);
        all.into_iter().map(|(.., messages)| messages).collect()
    }

    #[test]
    fn messages_are_numbered_on_the_way_between_two_ranks() {
        let both: &[_] = &[("send", Some(3)), ("recv", Some(3))];
        let all = messages_of(&[&[("send", Some(3))], both, &[("recv", Some(1))]]);
        let seen = |of: &NumberedMessage| (of.message.from, of.message.to, of.number);
        let seen: Vec<Vec<_>> = all.iter().map(|of| of.iter().map(seen).collect()).collect();
        assert_eq!(seen, [vec![(2, 3, 0)], vec![(2, 3, 1), (3, 2, 0)], vec![(1, 2, 0)]]);
        assert_eq!(all[0][0].way, all[1][0].way);
        assert_ne!(all[0][0].way, all[1][1].way, "the other way");
    }

    #[test]
    fn an_operation_of_which_a_rank_is_unknown_has_no_messages() {
        let known: &[_] = &[("send", Some(3))];
        let mixed: &[_] = &[("send", Some(3)), ("recv", None)];
        let others: &[_] = &[("send", Some(3)), ("broadcast", Some(0))];
        assert_eq!(messages_of(&[mixed, known, others]).len(), 1);
    }
}
