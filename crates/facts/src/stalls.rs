//! Groups and explains the reasons for which a warp of a GPU kernel was not issuing an instruction.
//!
//! CUPTI names them as metrics (`smsp__pcsamp_warps_issue_stalled_long_scoreboard`). What they mean
//! is from "Warp Stall Reasons" in the profiling guide of NVIDIA Nsight Compute. A second name with
//! `_not_issued` counts those of the same samples in whose cycle the scheduler issued nothing at
//! all, so it is a part of the first and in no sum.

/// What a warp waits for, in the words of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StallGroup {
    /// The warp issued an instruction: no stall.
    Issued,
    /// The warp could have issued one, and another warp of its scheduler did: no stall.
    Ready,
    /// Memory: data of the device's or constant memory, or room in the queue for such instructions.
    Memory,
    /// The result of an earlier instruction, or of shared memory.
    Dependency,
    /// Other threads: a barrier or a fence.
    Barrier,
    /// A busy unit for arithmetic.
    Math,
    /// The next instruction: fetching it, or a branch.
    Instruction,
    /// A sleep that the program asked for.
    Sleep,
    /// A reason that belongs to none of these, or that this tprof doesn't know.
    Other,
}

impl StallGroup {
    /// All groups, in the order of reports.
    pub const ALL: [StallGroup; 9] = [
        StallGroup::Issued,
        StallGroup::Ready,
        StallGroup::Memory,
        StallGroup::Dependency,
        StallGroup::Barrier,
        StallGroup::Math,
        StallGroup::Instruction,
        StallGroup::Sleep,
        StallGroup::Other,
    ];

    /// The group's name.
    pub fn name(self) -> &'static str {
        match self {
            StallGroup::Issued => "issued",
            StallGroup::Ready => "ready",
            StallGroup::Memory => "memory",
            StallGroup::Dependency => "dependency",
            StallGroup::Barrier => "barrier",
            StallGroup::Math => "math",
            StallGroup::Instruction => "instruction",
            StallGroup::Sleep => "sleep",
            StallGroup::Other => "other",
        }
    }

    /// Whether the warp was held up.
    pub fn is_stall(self) -> bool {
        !matches!(self, StallGroup::Issued | StallGroup::Ready)
    }
}

/// Known reasons: the end of CUPTI's name, the group, and what the warp waited for.
const REASONS: [(&str, StallGroup, &str); 22] = [
    ("selected", StallGroup::Issued, "nothing: it issued an instruction"),
    ("not_selected", StallGroup::Ready, "its turn: the scheduler chose another warp"),
    ("long_scoreboard", StallGroup::Memory, "global, local, texture or surface memory"),
    ("lg_throttle", StallGroup::Memory, "room in the queue for global and local memory"),
    ("tex_throttle", StallGroup::Memory, "room in the queue for texture memory"),
    (
        "mio_throttle",
        StallGroup::Memory,
        "room in the queue for shared memory and special functions",
    ),
    ("drain", StallGroup::Memory, "its last writes to memory, after its end"),
    ("imc_miss", StallGroup::Memory, "constant memory that was not in the cache"),
    ("short_scoreboard", StallGroup::Dependency, "shared memory or a special function"),
    ("wait", StallGroup::Dependency, "the fixed latency of its last instruction"),
    ("barrier", StallGroup::Barrier, "the other threads of its block"),
    ("membar", StallGroup::Barrier, "a memory fence"),
    ("warpgroup_arrive", StallGroup::Barrier, "the other warps of its group"),
    ("math_pipe_throttle", StallGroup::Math, "a unit for arithmetic that was busy"),
    ("gmma", StallGroup::Math, "the tensor cores"),
    ("tensor_pipe_throttle", StallGroup::Math, "the tensor cores"),
    ("no_instructions", StallGroup::Instruction, "its next instruction, which had to be fetched"),
    ("no_inst", StallGroup::Instruction, "its next instruction, which had to be fetched"),
    ("branch_resolving", StallGroup::Instruction, "the target of a branch"),
    ("dispatch_stall", StallGroup::Instruction, "the dispatch unit"),
    ("sleeping", StallGroup::Sleep, "the end of a sleep that the program asked for"),
    ("misc", StallGroup::Other, "something that has no reason of its own"),
];

/// The beginnings of CUPTI's names, which no report needs.
const PREFIXES: [&str; 2] = ["smsp__pcsamp_warps_issue_stalled_", "smsp__pcsamp_issue_stalled_"];
const NOT_ISSUED: &str = "_not_issued";

/// A reason, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallReason<'a> {
    /// The end of CUPTI's name: `long_scoreboard`.
    pub name: &'a str,
    /// The group to which tprof assigns it.
    pub group: StallGroup,
    /// What the warp waited for; `None` for a reason that this table doesn't have.
    pub waits_for: Option<&'static str>,
    /// Whether it counts only samples in whose cycle nothing was issued.
    pub is_not_issued: bool,
}

impl<'a> StallReason<'a> {
    /// Interprets CUPTI's name of a reason.
    pub fn of(name: &'a str) -> StallReason<'a> {
        let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let (short, is_not_issued) = match short.strip_suffix(NOT_ISSUED) {
            Some(of) => (of, true),
            None => (short, false),
        };
        let known = REASONS.iter().find(|known| known.0 == short);
        StallReason {
            name: short,
            group: known.map_or(StallGroup::Other, |known| known.1),
            waits_for: known.map(|known| known.2),
            is_not_issued,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuptis_names_have_groups() {
        let of = StallReason::of;
        let memory = of("smsp__pcsamp_warps_issue_stalled_long_scoreboard");
        assert_eq!((memory.name, memory.group), ("long_scoreboard", StallGroup::Memory));
        assert!(memory.waits_for.is_some() && !memory.is_not_issued);
        let not_issued = of("smsp__pcsamp_warps_issue_stalled_wait_not_issued");
        assert_eq!((not_issued.name, not_issued.group), ("wait", StallGroup::Dependency));
        assert!(not_issued.is_not_issued);
        assert!(!of("smsp__pcsamp_warps_issue_stalled_selected").group.is_stall());
        assert!(!of("smsp__pcsamp_warps_issue_stalled_not_selected").group.is_stall());
    }

    #[test]
    fn a_reason_of_a_later_device_is_kept_under_its_name() {
        let reason = StallReason::of("smsp__pcsamp_warps_issue_stalled_quantum");
        assert_eq!((reason.name, reason.group), ("quantum", StallGroup::Other));
        assert_eq!(reason.waits_for, None);
    }
}
