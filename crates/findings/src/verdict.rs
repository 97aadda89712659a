//! Defines the verdicts that a rule may return.

use super::finding::Finding;

/// A rule's verdict on a rank.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Problems whose fix may gain something. The caller drops findings whose bound is below 1 %.
    Found(Vec<Finding>),
    /// There is no problem. The text says what the rule measured.
    NoProblem(String),
    /// The window contains no event of the kind that the rule judges. The text says which.
    NothingToJudge(String),
    /// The rule can't judge, because the recording lacks data that it needs.
    Unchecked(Unchecked),
}

impl Verdict {
    pub(super) fn no_problem(why: impl Into<String>) -> Verdict {
        Verdict::NoProblem(why.into())
    }

    pub(super) fn nothing_to_judge(why: impl Into<String>) -> Verdict {
        Verdict::NothingToJudge(why.into())
    }

    pub(super) fn unchecked(why: impl Into<String>, needs: impl Into<String>) -> Verdict {
        let (why, needs) = (why.into(), needs.into());
        Verdict::Unchecked(Unchecked { why, needs, denies: false })
    }

    /// Returns the verdict of a rule for which the recording has no data at all. The reason may be
    /// untrue of other ranks.
    pub(super) fn nothing_recorded(why: impl Into<String>, needs: impl Into<String>) -> Verdict {
        Verdict::Unchecked(Unchecked { why: why.into(), needs: needs.into(), denies: true })
    }
}

/// The reason why a rule can't judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unchecked {
    /// The data that is missing, and what is known without it.
    pub why: String,
    /// The data that the rule needs, and how to get it.
    pub needs: String,
    /// Whether `why` says that the rank has no event of some kind. That text may be untrue of
    /// another rank.
    pub denies: bool,
}
