//! Finds what the ranks of a communicator divide among themselves: data, tensors, stages, experts or
//! sequences.
//!
//! The name decides, where it says so: PyTorch's device meshes name their groups `mesh_dp`,
//! Megatron-LM `TENSOR_MODEL_PARALLEL_GROUP`. Otherwise, only what is carried may decide, and only
//! where nothing else looks like it. A group that reduces may divide data as well as tensors, so its
//! role is unknown.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use tprof_trace::model::{Collective, ProcessIndex};

use super::trace::RankTrace;

/// The role of a communicator, which is what its ranks divide among themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Samples; the ranks reduce gradients, or gather parameters.
    Data,
    /// The tensors of a layer.
    Tensor,
    /// The layers of a model; each stage passes its results on to the next.
    Pipeline,
    /// The experts of a layer.
    Expert,
    /// The tokens of a sequence (context parallelism).
    Sequence,
    /// What the trace has does not tell.
    #[default]
    Unknown,
}

/// Words in the names of groups, and the roles that they mean.
const WORDS: [(&str, Role); 15] = [
    ("dp", Role::Data),
    ("ddp", Role::Data),
    ("fsdp", Role::Data),
    ("hsdp", Role::Data),
    ("data", Role::Data),
    ("tp", Role::Tensor),
    ("tensor", Role::Tensor),
    ("pp", Role::Pipeline),
    ("pipeline", Role::Pipeline),
    ("ep", Role::Expert),
    ("expert", Role::Expert),
    ("sp", Role::Sequence),
    ("cp", Role::Sequence),
    ("sequence", Role::Sequence),
    ("context", Role::Sequence),
];

/// Fewest all_to_all operations whose sizes are compared.
const LEAST_EXCHANGES: usize = 8;

impl Role {
    /// The word for a role, in tables.
    pub fn word(self) -> &'static str {
        match self {
            Role::Data => "data",
            Role::Tensor => "tensor",
            Role::Pipeline => "pipeline",
            Role::Expert => "expert",
            Role::Sequence => "sequence",
            Role::Unknown => "unknown",
        }
    }

    /// Returns the role that a group's name or description tells. The gradients of experts are
    /// reduced by a group that divides data, and those of sequences together with those of data.
    pub fn of_name(name: &str) -> Role {
        let lower = name.to_ascii_lowercase();
        let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
        let roles = words.filter_map(|word| WORDS.iter().find(|known| known.0 == word));
        let mut roles: BTreeSet<Role> = roles.map(|(_, role)| *role).collect();
        if roles.len() > 1 {
            roles.remove(&Role::Expert);
        }
        if roles.contains(&Role::Data) {
            roles.remove(&Role::Sequence);
        }
        match (roles.pop_first(), roles.is_empty()) {
            (Some(role), true) => role,
            _ => Role::Unknown,
        }
    }
}

/// What a communicator of a rank carries.
#[derive(Default)]
struct Carried {
    /// Names of its operations other than sends and receives.
    others: BTreeSet<String>,
    /// Ranks that the rank sends to, and those that it receives from.
    peers: [BTreeSet<u32>; 2],
    /// Sizes of the operations, bytes.
    sizes: Vec<u64>,
    group_size: Option<u32>,
}

impl Carried {
    fn add(&mut self, rank: &RankTrace<'_>, row: &Collective) {
        let name = rank.name(row.name);
        match (name, row.peer) {
            ("send", Some(peer)) => self.peers[0].insert(peer),
            ("recv", Some(peer)) => self.peers[1].insert(peer),
            _ => self.others.insert(name.to_owned()),
        };
        self.sizes.extend(row.bytes);
        self.group_size = self.group_size.max(row.group_size);
    }

    /// A rank that sends to one rank and receives from the same passes results on and gets gradients
    /// back. In a ring, as of sequences, the two differ, unless it is a ring of two.
    fn role(mut self) -> Role {
        let [to, from] = &self.peers;
        let is_both_ways = to.intersection(from).next().is_some();
        if self.others.is_empty() && is_both_ways && self.group_size.is_some_and(|size| size > 2) {
            return Role::Pipeline;
        }
        // Tokens go to the experts that a router chooses, so the sizes differ each time. Exchanges
        // of sequences and of embeddings have the same size each time.
        let count = self.sizes.len();
        self.sizes.sort_unstable();
        self.sizes.dedup();
        let is_uneven = count >= LEAST_EXCHANGES && self.sizes.len() * 2 > count;
        match self.others.iter().all(|name| name == "all_to_all") {
            true if is_uneven && to.is_empty() && from.is_empty() => Role::Expert,
            _ => Role::Unknown,
        }
    }
}

/// Returns the roles of a rank's communicators.
pub(super) fn roles(rank: &RankTrace<'_>) -> FxHashMap<(ProcessIndex, u64), Role> {
    let mut carried: FxHashMap<(ProcessIndex, u64), Carried> = FxHashMap::default();
    for row in &rank.collectives {
        let Some(communicator) = row.communicator else { continue };
        carried.entry((row.process, communicator)).or_default().add(rank, row);
    }
    let mut roles: FxHashMap<(ProcessIndex, u64), Role> =
        carried.into_iter().map(|(key, carried)| (key, carried.role())).collect();
    for row in rank.file.communicators() {
        let named = [row.description, row.name].map(|name| Role::of_name(rank.name(name)));
        if let Some(role) = named.into_iter().find(|role| *role != Role::Unknown) {
            roles.insert((row.process, row.communicator), role);
        }
    }
    roles
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::Communicator;

    use super::*;
    use crate::rank::Needs;

    #[test]
    fn names_of_groups_tell_their_roles() {
        for (name, role) in [
            ("mesh_dp", Role::Data),
            ("mesh_dp_shard", Role::Data),
            ("mesh_dp_cp", Role::Data),
            ("DATA_PARALLEL_GROUP_WITH_CP", Role::Data),
            ("EXPERT_DATA_PARALLEL_GROUP", Role::Data),
            ("mesh_tp", Role::Tensor),
            ("TENSOR_MODEL_PARALLEL_GROUP", Role::Tensor),
            ("EXPERT_TENSOR_PARALLEL_GROUP", Role::Tensor),
            ("PIPELINE_MODEL_PARALLEL_GROUP", Role::Pipeline),
            ("mesh_pp", Role::Pipeline),
            ("EXPERT_MODEL_PARALLEL_GROUP", Role::Expert),
            ("mesh_ep", Role::Expert),
            ("CONTEXT_PARALLEL_GROUP", Role::Sequence),
            ("mesh_sp", Role::Sequence),
            ("TENSOR_AND_DATA_PARALLEL_GROUP", Role::Unknown),
            ("MODEL_PARALLEL_GROUP", Role::Unknown),
            ("default_pg", Role::Unknown),
            ("update", Role::Unknown),
            ("", Role::Unknown),
        ] {
            assert_eq!(Role::of_name(name), role, "{name}");
        }
    }

    /// Returns the role of a communicator without a name that carries these operations: name, peer
    /// and bytes.
    fn carries(operations: &[(&str, Option<u32>, u64)], size: u32) -> Role {
        let mut trace = Fixture::new();
        let description = trace.name("default_pg");
        trace.writer.communicator(&Communicator {
            communicator: 5,
            description,
            ..Default::default()
        });
        for (name, peer, bytes) in operations {
            let name = trace.name(name);
            trace.collectives.push(Collective {
                name,
                peer: *peer,
                bytes: Some(*bytes),
                communicator: Some(5),
                group_size: Some(size),
                ..Collective::default()
            });
        }
        let file = trace.finish();
        roles(&RankTrace::load(&file, Needs::COLLECTIVES))[&(0, 5)]
    }

    #[test]
    fn results_and_gradients_between_the_same_ranks_are_a_pipeline() {
        let both = [("send", Some(1), 64), ("recv", Some(1), 64)];
        assert_eq!(carries(&both, 4), Role::Pipeline);
        assert_eq!(carries(&both, 2), Role::Unknown, "a ring of two looks the same");
        assert_eq!(carries(&[("send", Some(1), 64), ("recv", Some(3), 64)], 4), Role::Unknown);
        let reduces = [both[0], both[1], ("all_reduce", None, 4)];
        assert_eq!(carries(&reduces, 4), Role::Unknown);
    }

    #[test]
    fn exchanges_of_different_sizes_are_of_experts() {
        let uneven: Vec<_> = (0..10).map(|at| ("all_to_all", None, 1000 + at)).collect();
        assert_eq!(carries(&uneven, 8), Role::Expert);
        let even: Vec<_> = (0..10).map(|_| ("all_to_all", None, 1000)).collect();
        assert_eq!(carries(&even, 8), Role::Unknown);
        let reduces: Vec<_> = (0..10).map(|at| ("all_reduce", None, 1000 + at)).collect();
        assert_eq!(carries(&reduces, 8), Role::Unknown);
    }
}
