//! The answers that a rule may give.

use super::finding::Finding;

/// A rule's verdict on a rank.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Something may be gained; bounds below 1 % are sorted out by the caller.
    Found(Vec<Finding>),
    /// Nothing is wrong; the text is the measurement.
    Clear(String),
    /// The window has none of the things that the rule searches for.
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

    /// The verdict if none of the data that the rule needs is there.
    pub(super) fn none_to_judge(why: impl Into<String>, needs: impl Into<String>) -> Verdict {
        Verdict::Unchecked(Unchecked { why: why.into(), needs: needs.into(), denies: true })
    }
}

/// Why a rule cannot answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unchecked {
    /// What is missing, and what is known in spite of that.
    pub why: String,
    /// The data that the rule needs, and how to get it.
    pub needs: String,
    /// Whether `why` states that there is none of something, which may be untrue of another rank.
    pub denies: bool,
}
