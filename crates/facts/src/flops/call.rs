//! Reads the arguments of an operator's call from a trace.

use serde_json::Value;

use super::element::ElementType;
use super::why::WhyUncounted;

/// Sizes of a tensor.
pub(super) type Dims = Vec<u64>;

/// A tensor's sizes and type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub dims: Dims,
    /// Type of the elements; `None` if the trace has no types, or an unknown one.
    pub of: Option<ElementType>,
}

impl Tensor {
    /// Returns the number of elements.
    pub fn count(&self) -> Result<u64, WhyUncounted> {
        product(&self.dims)
    }

    /// Returns the size of the tensor in bytes; `None` if its type is unknown.
    pub fn bytes(&self) -> Option<u64> {
        self.count().ok()?.checked_mul(self.of?.bytes())
    }
}

/// Returns the product of sizes, unless it overflows.
pub(super) fn product(dims: &[u64]) -> Result<u64, WhyUncounted> {
    dims.iter().try_fold(1_u64, |all, size| all.checked_mul(*size)).ok_or(TOO_LARGE)
}

/// The sizes are larger than those of any tensor.
pub(super) const TOO_LARGE: WhyUncounted = WhyUncounted::Unfit("sizes are too large");

/// One argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// A tensor with its sizes.
    Tensor(Tensor),
    /// A list of tensors.
    Tensors(Vec<Tensor>),
    /// A value that is not a tensor, or a tensor that could not be read, as the text in the trace,
    /// which may be empty.
    Value(String),
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    inputs: Vec<Input>,
}

impl Call {
    /// Creates a call without arguments.
    pub fn none() -> Call {
        Call { inputs: Vec::new() }
    }

    /// Parses a span's arguments, a JSON object.
    pub fn read(args: &str) -> Result<Call, WhyUncounted> {
        // Check for the key before parsing, since operators without sizes are common and parsing is
        // slow.
        if !args.contains("\"Input Dims\"") {
            return Err(WhyUncounted::NoShapes);
        }
        let args: Value =
            serde_json::from_str(args).map_err(|_| WhyUncounted::Unfit("not JSON"))?;
        let dims = list(&args, "Input Dims").ok_or(WhyUncounted::Unfit("no list of sizes"))?;
        let types = list(&args, "Input type");
        let values = list(&args, "Concrete Inputs");
        let of_lists = list(&args, "Tensor types");
        let inputs = dims.iter().enumerate().map(|(at, dims)| {
            let text = |list: &Option<&Vec<Value>>| {
                let one = list.as_ref().and_then(|list| list.get(at));
                one.and_then(Value::as_str).map(str::to_owned)
            };
            let value = || text(&values).unwrap_or_default();
            let of = text(&types);
            match of.as_deref() {
                Some("TensorList" | "GenericList") if is_nested(dims) => {
                    let of = text(&of_lists).and_then(|of| ElementType::of(&of));
                    Ok(Input::Tensors(tensors(dims, of)?))
                }
                // Without types, nested sizes show that the argument is a list of tensors.
                None if is_nested(dims) => Ok(Input::Tensors(tensors(dims, None)?)),
                None => Ok(Input::Tensor(Tensor { dims: sizes(dims)?, of: None })),
                // PyTorch 2.1 writes an empty type for such tensors.
                Some("") if dims.as_array().is_some_and(|dims| !dims.is_empty()) => {
                    Ok(Input::Tensor(Tensor { dims: sizes(dims)?, of: None }))
                }
                Some("" | "Scalar" | "ScalarList" | "TensorList" | "GenericList") => {
                    Ok(Input::Value(value()))
                }
                Some(of) if of.starts_with("nullptr") => Ok(Input::Value(value())),
                Some(of) => {
                    Ok(Input::Tensor(Tensor { dims: sizes(dims)?, of: ElementType::of(of) }))
                }
            }
        });
        Ok(Call { inputs: inputs.collect::<Result<_, WhyUncounted>>()? })
    }

    /// Returns the tensor at a position.
    pub fn tensor(&self, at: usize) -> Result<&Tensor, WhyUncounted> {
        match self.inputs.get(at) {
            Some(Input::Tensor(tensor)) => Ok(tensor),
            _ => Err(WhyUncounted::Unfit("a tensor's sizes were not recorded")),
        }
    }

    /// Returns the tensor at a position, or `None` if there is none with sizes, as for an optional
    /// argument.
    pub fn maybe(&self, at: usize) -> Option<&Tensor> {
        match self.inputs.get(at) {
            Some(Input::Tensor(tensor)) if !tensor.dims.is_empty() => Some(tensor),
            _ => None,
        }
    }

    /// Returns the list of tensors at a position.
    pub fn tensors(&self, at: usize) -> Result<&[Tensor], WhyUncounted> {
        match self.inputs.get(at) {
            Some(Input::Tensors(list)) if !list.is_empty() => Ok(list),
            _ => Err(WhyUncounted::Unfit("the sizes of a list of tensors were not recorded")),
        }
    }

    /// Returns all recorded lists of tensors.
    pub fn lists(&self) -> impl Iterator<Item = &[Tensor]> {
        self.inputs.iter().filter_map(|input| match input {
            Input::Tensors(list) if !list.is_empty() => Some(&**list),
            _ => None,
        })
    }

    /// Returns the first tensors among the arguments, at most this many.
    pub fn first_tensors(&self, most: usize) -> Vec<&Tensor> {
        let tensors = self.inputs.iter().filter_map(|input| match input {
            Input::Tensor(tensor) => Some(tensor),
            _ => None,
        });
        tensors.take(most).collect()
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    fn value(&self, at: usize) -> Option<&str> {
        match self.inputs.get(at)? {
            Input::Value(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Returns the boolean at a position, if it was recorded.
    pub fn flag(&self, at: usize) -> Option<bool> {
        match self.value(at)? {
            "True" | "true" | "1" => Some(true),
            "False" | "false" | "0" => Some(false),
            _ => None,
        }
    }

    /// Returns the integer at a position, if it was recorded.
    pub fn number(&self, at: usize) -> Option<i64> {
        self.value(at)?.parse().ok()
    }

    /// Returns the list of integers at a position, if it was recorded.
    pub fn numbers(&self, at: usize) -> Option<Vec<i64>> {
        let text = self.value(at)?.strip_prefix('[')?.strip_suffix(']')?;
        match text.trim() {
            "" => Some(Vec::new()),
            text => text.split(',').map(|one| one.trim().parse().ok()).collect(),
        }
    }

    /// Returns the list of booleans at a position, if it was recorded.
    pub fn flags(&self, at: usize) -> Option<Vec<bool>> {
        let text = self.value(at)?.strip_prefix('[')?.strip_suffix(']')?;
        let flag = |one: &str| match one.trim() {
            "True" | "true" | "1" => Some(true),
            "False" | "false" | "0" => Some(false),
            _ => None,
        };
        text.split(',').map(flag).collect()
    }
}

fn list<'v>(args: &'v Value, key: &str) -> Option<&'v Vec<Value>> {
    args.get(key)?.as_array()
}

fn is_nested(dims: &Value) -> bool {
    dims.as_array().is_some_and(|dims| dims.first().is_some_and(Value::is_array))
}

fn tensors(dims: &Value, of: Option<ElementType>) -> Result<Vec<Tensor>, WhyUncounted> {
    let all = dims.as_array().into_iter().flatten();
    all.map(|dims| Ok(Tensor { dims: sizes(dims)?, of })).collect()
}

fn sizes(dims: &Value) -> Result<Dims, WhyUncounted> {
    let dims = dims.as_array().ok_or(WhyUncounted::Unfit("sizes are no list"))?;
    let size = |size: &Value| match (size.as_u64(), size.as_i64()) {
        (Some(size), _) => Ok(size),
        (None, Some(_)) => Err(WhyUncounted::Unfit("a size is negative")),
        (None, None) => Err(WhyUncounted::Unfit("a size is no whole number")),
    };
    dims.iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_what_torch_profiler_writes() {
        let args = r#"{"Input Dims":[[2,3],[],[[4],[5,6]],[],[]],
            "Input type":["float","Scalar","TensorList","ScalarList","c10::Half"],
            "Concrete Inputs":["","True","","[1, -2]",""]}"#;
        let call = Call::read(args).unwrap();
        assert_eq!(call.tensor(0).unwrap().bytes(), Some(24));
        assert_eq!(call.flag(1), Some(true));
        assert_eq!(call.tensors(2).unwrap()[1].count(), Ok(30));
        assert_eq!(call.numbers(3), Some(vec![1, -2]));
        assert_eq!(call.tensor(4).unwrap().count(), Ok(1));
        assert_eq!(call.maybe(4), None);
        assert!(call.tensor(1).is_err() && call.tensor(9).is_err());
        for types in ["", r#","Input type":["",""]"#] {
            let args = format!(r#"{{"Input Dims":[[2, 3], [3, 4]]{types}}}"#);
            assert_eq!(Call::read(&args).unwrap().tensor(1).unwrap().of, None);
        }
    }

    #[test]
    fn impossible_sizes_are_not_read() {
        let unread = |args: &str| Call::read(args).unwrap_err();
        assert_eq!(unread("{}"), WhyUncounted::NoShapes);
        let dims = |text: &str| unread(&format!(r#"{{"Input Dims":{text}}}"#));
        assert_eq!(dims("[[2,-1]]"), WhyUncounted::Unfit("a size is negative"));
        assert_eq!(dims("[[2,1.5]]"), WhyUncounted::Unfit("a size is no whole number"));
        assert_eq!(dims("[7]"), WhyUncounted::Unfit("sizes are no list"));
        assert_eq!(dims("3"), WhyUncounted::Unfit("no list of sizes"));
        assert_eq!(unread(r#"{"Input Dims":["#), WhyUncounted::Unfit("not JSON"));
        let large = Call::read(r#"{"Input Dims":[[18446744073709551615,2]]}"#).unwrap();
        assert_eq!(large.tensor(0).unwrap().count(), Err(TOO_LARGE));
    }
}
