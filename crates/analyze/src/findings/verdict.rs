//! What a rule may answer.

use super::finding::Finding;

/// A rule's verdict on a rank.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Something may be gained; bounds below 1 % are sorted out by the caller.
    Found(Vec<Finding>),
    /// Nothing, and what was measured instead.
    Clear(String),
    /// There is none of what it searches.
    None(String),
    /// The data is not enough.
    Unchecked(Unchecked),
}

impl Verdict {
    pub(super) fn clear(why: impl Into<String>) -> Verdict {
        Verdict::Clear(why.into())
    }

    pub(super) fn none(why: impl Into<String>) -> Verdict {
        Verdict::None(why.into())
    }

    pub(super) fn unchecked(why: impl Into<String>, needs: impl Into<String>) -> Verdict {
        let (why, needs) = (why.into(), needs.into());
        Verdict::Unchecked(Unchecked { why, needs, denies: false })
    }

    /// There is none of what it would need.
    pub(super) fn none_to_judge(why: impl Into<String>, needs: impl Into<String>) -> Verdict {
        Verdict::Unchecked(Unchecked { why: why.into(), needs: needs.into(), denies: true })
    }
}

/// Why a rule cannot answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unchecked {
    /// What is missing, and what is known all the same.
    pub why: String,
    /// Which data it needs, and how to get it.
    pub needs: String,
    /// Whether `why` denies something: it may be untrue of another rank.
    pub denies: bool,
}
