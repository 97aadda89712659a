//! Records of PyTorch's operators and ranges, which its `RecordFunction` reports to the preloaded
//! library, and of the sizes of their inputs.

/// Which details of operators are recorded: values of [`crate::region::RegionHeader::operators`].
pub mod mode {
    /// Nothing is recorded.
    pub const OFF: u32 = 0;
    /// Names, times, and autograd's sequence numbers.
    pub const NAMES: u32 = 1;
    /// What `NAMES` records, and sizes and types of the inputs.
    pub const SHAPES: u32 = 2;
    /// Like `NAMES`, as long as recording costs only a small share of a thread's time; otherwise
    /// only some steps are recorded ([`super::note::TURNS`]).
    pub const AUTO: u32 = 3;
}

/// Number of values of `at::RecordScope`.
pub const SCOPES: usize = 10;
/// `at::RecordScope::USER_SCOPE`: the scope of `record_function` and the like.
pub const USER_SCOPE: u8 = 7;

/// [`crate::record::ExtKind::Operator`]: an operator ended at the record's clock. The record's
/// argument is the id of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// Ticks from its beginning to its end.
    pub ticks: u64,
    /// The inputs that it was called with.
    pub inputs: Inputs,
}

/// The inputs that an operator or range was called with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Autograd's sequence number plus one; 0 if there is none, or if it needs more than 32 bits.
    pub sequence: u32,
    /// Id of the inputs' sizes, [`crate::record::ExtKind::Sizes`]; 0 if they are not known.
    pub sizes: u32,
}

impl Inputs {
    /// Packs them into a word.
    #[inline(always)]
    pub const fn pack(&self) -> u64 {
        self.sequence as u64 | (self.sizes as u64) << 32
    }

    /// Unpacks them from a word.
    pub const fn unpack(word: u64) -> Inputs {
        Inputs { sequence: word as u32, sizes: (word >> 32) as u32 }
    }
}

impl Operator {
    /// Packs it into a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.ticks, self.inputs.pack()]
    }

    /// Unpacks it from a payload.
    pub fn unpack(words: &[u64]) -> Option<Operator> {
        let [ticks, inputs, ..] = *words else { return None };
        Some(Operator { ticks, inputs: Inputs::unpack(inputs) })
    }
}

/// [`crate::record::ExtKind::RangeOpen`] and, without inputs, [`crate::record::ExtKind::RangeClosed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEdge {
    /// Address of the range's object, which identifies the range while it is open. The range may
    /// end in another thread.
    pub object: u64,
    /// The inputs that the range was called with.
    pub inputs: Inputs,
}

impl RangeEdge {
    /// Packs it into a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.object, self.inputs.pack()]
    }

    /// Unpacks it from a payload.
    pub fn unpack(words: &[u64]) -> Option<RangeEdge> {
        let [object, inputs, ..] = *words else { return None };
        Some(RangeEdge { object, inputs: Inputs::unpack(inputs) })
    }
}

/// What an [`crate::record::ExtKind::OperatorNote`] reports, by its argument. Each note has two
/// words.
pub mod note {
    /// The callbacks are registered. Words: the [`super::mode`] from now on; the id of the path of
    /// libtorch_cpu.
    pub const ARMED: u32 = 1;
    /// The callbacks can't be registered. Words: 0; the id of that path.
    pub const NO_SYMBOLS: u32 = 2;
    /// Sizes can't be read. Words: the reason ([`super::unread`]); the id of that path.
    pub const NO_SIZES: u32 = 3;
    /// From now on one step in N is recorded, so that operators cost no more than their share of a
    /// thread's time. Words: N; the share that the operators of all steps would cost, in
    /// millionths.
    pub const TURNS: u32 = 4;
    /// The process was forked while its parent registered the callbacks, so it lacks some or all of
    /// them. Words: 0; 0.
    pub const FORKED: u32 = 5;
}

/// The reason why sizes can't be read: values of [`note::NO_SIZES`].
pub mod unread {
    /// A function that is needed is missing.
    pub const NO_FUNCTION: u64 = 1;
    /// PyTorch threw an exception while tprof tested its functions.
    pub const THROWN: u64 = 2;
    /// tprof found the inputs at none of the possible offsets.
    pub const NO_PLACE: u64 = 3;
}

/// Maximum number of words of a list of sizes. Inputs that don't fit are left out, and the list
/// ends with [`Input::More`].
pub const SIZES_WORDS: usize = 440;

const _: () = assert!(SIZES_WORDS * 8 <= crate::interned::MAX_KEPT_BYTES);

/// Maximum number of tensors of a list input. A longer list's tensors are left out; torch.profiler
/// writes such a list as `[]`, too.
pub const MAX_LISTED: usize = 30;

/// Maximum number of numbers of a list input. A longer list is [`Input::Other`].
pub const MAX_NUMBERS: usize = 16;

/// The first word of an input in a list. A tensor's sizes follow, one word each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A tensor of `dims` dimensions and this `c10::ScalarType`.
    Tensor {
        /// Number of dimensions.
        dims: u16,
        /// Type; [`NO_TYPE`] if it is not known.
        of: u8,
    },
    /// A list of tensors. They follow as inputs of their own, unless there are more than
    /// [`MAX_LISTED`].
    Tensors {
        /// Number of tensors.
        count: u32,
    },
    /// An input that isn't one of the other kinds: an `IValue` with this tag.
    Other {
        /// Tag of the `IValue`.
        tag: u32,
    },
    /// A truth value.
    Truth {
        /// The truth value.
        value: bool,
    },
    /// A list of integers or truth values, which follow, one word each.
    Numbers {
        /// Number of values, at most [`MAX_NUMBERS`].
        count: u32,
        /// Whether the values are booleans.
        truths: bool,
    },
    /// A tensor whose sizes are symbolic, or could not be read.
    Unread,
    /// More inputs follow that don't fit.
    More,
}

/// The type of an [`Input::Tensor`] if it is not known.
pub const NO_TYPE: u8 = u8::MAX;

impl Input {
    /// Packs it into a word.
    #[inline(always)]
    pub fn pack(self) -> u64 {
        match self {
            Input::Tensor { dims, of } => 1 | u64::from(of) << 8 | u64::from(dims) << 16,
            Input::Other { tag } => 2 | u64::from(tag) << 32,
            Input::Unread => 3,
            Input::More => 4,
            Input::Tensors { count } => 5 | u64::from(count) << 32,
            Input::Truth { value } => 6 | u64::from(value) << 32,
            Input::Numbers { count, truths } => 7 | u64::from(truths) << 8 | u64::from(count) << 32,
        }
    }

    /// Unpacks it from a word.
    pub fn unpack(word: u64) -> Option<Input> {
        Some(match word as u8 {
            1 => Input::Tensor { dims: (word >> 16) as u16, of: (word >> 8) as u8 },
            2 => Input::Other { tag: (word >> 32) as u32 },
            3 => Input::Unread,
            4 => Input::More,
            5 => Input::Tensors { count: (word >> 32) as u32 },
            6 => Input::Truth { value: word >> 32 != 0 },
            7 => Input::Numbers { count: (word >> 32) as u32, truths: (word >> 8) as u8 != 0 },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_inputs_round_trip() {
        let inputs = Inputs { sequence: 7, sizes: u32::MAX };
        let operator = Operator { ticks: u64::MAX, inputs };
        assert_eq!(Operator::unpack(&operator.pack()), Some(operator));
        let range = RangeEdge { object: u64::MAX, inputs };
        assert_eq!(RangeEdge::unpack(&range.pack()), Some(range));
        assert_eq!((Operator::unpack(&[1]), RangeEdge::unpack(&[])), (None, None));
        let tensor = Input::Tensor { dims: u16::MAX, of: 15 };
        let list = Input::Tensors { count: u32::MAX };
        let numbers = Input::Numbers { count: 16, truths: true };
        let truth = Input::Truth { value: true };
        let others = [Input::Other { tag: 5 }, Input::Unread, Input::More];
        for input in [tensor, list, numbers, truth].into_iter().chain(others) {
            assert_eq!(Input::unpack(input.pack()), Some(input));
        }
        assert_eq!(Input::unpack(0), None);
    }
}
