//! Counts the work of operators, in floating-point operations and bytes, from the sizes of their
//! inputs.
//!
//! A trace has the sizes (`Input Dims`), mostly the types, and with newer PyTorch also values that
//! are not tensors (`Concrete Inputs`). The formulas are those of `torch.utils.flop_counter` if it
//! has one for the operator (`scripts/flops-check.sh` compares them), and otherwise our own, which
//! `docs/metrics.md` lists. An operator that can't be counted has a reason instead of a count.
//!
//! Operators are nested (`aten::linear` calls `aten::addmm`); [`Level`] says which of them count.

mod attention;
mod call;
mod convolution;
mod element;
mod moves;
pub mod peaks;
mod pointwise;
mod products;
mod rows;
#[cfg(test)]
mod tests;
mod why;
mod work;

pub use element::ElementType;
pub use products::ProductSizes;
pub use why::WhyUncounted;
pub use work::{Family, Level, Work};

/// The work of an operator, if it can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The operator has this work.
    Work(Work),
    /// The operator has no work of its own. It makes views, allocates memory, or only calls others.
    Nothing,
    /// The work is unknown for this reason.
    Unread(WhyUncounted),
}

/// Counts the work of an operator, given its name and a span's arguments (a JSON object, or empty).
pub fn of(operator: &str, args: &str) -> Count {
    let (space, name) = operator.split_once("::").unwrap_or(("", operator));
    if (space == "aten" && moves::is_free(name)) || is_node(operator) {
        return Count::Nothing;
    }
    if !matches!(space, "aten" | "flash_attn" | "torch_attn") {
        return Count::Unread(WhyUncounted::NoFormula);
    }
    // If there are no sizes, the formulas get an empty call, which shows whether the operator has a
    // formula at all.
    let read = call::Call::read(args);
    let none = call::Call::none();
    let work = formula(space, operator, name, read.as_ref().unwrap_or(&none));
    match (work, read) {
        (None, _) => Count::Unread(WhyUncounted::NoFormula),
        (Some(_), Err(why)) | (Some(Err(why)), Ok(_)) => Count::Unread(why),
        (Some(Ok(work)), Ok(_)) => Count::Work(work),
    }
}

/// Returns the sizes of a product of two matrices, or of a batch of such products; `None` for other
/// operators.
pub fn product_sizes(operator: &str, args: &str) -> Option<ProductSizes> {
    products::sizes(operator.strip_prefix("aten::")?, &call::Call::read(args).ok()?)
}

/// Returns the last size of the first tensor among an operator's inputs.
pub fn last_size(args: &str) -> Option<u64> {
    let call = call::Call::read(args).ok()?;
    call.first_tensors(1).first()?.dims.last().copied()
}

/// Whether the operator is a function of autograd, which only calls operators.
pub fn is_node(operator: &str) -> bool {
    operator.starts_with(NODE_PREFIX)
        || operator == "torch::autograd::AccumulateGrad"
        || (!operator.contains("::")
            && operator
                .trim_end_matches(|digit: char| digit.is_ascii_digit())
                .ends_with("Backward"))
}

/// Prefix of the operators in which PyTorch's engine runs a function of autograd; the function's
/// name follows.
pub const NODE_PREFIX: &str = "autograd::engine::evaluate_function: ";

fn formula(
    space: &str,
    operator: &str,
    name: &str,
    call: &call::Call,
) -> Option<Result<Work, WhyUncounted>> {
    let attention = attention::of(operator, call);
    if attention.is_some() || space != "aten" {
        return attention;
    }
    products::of(name, call)
        .or_else(|| convolution::of(name, call))
        .or_else(|| rows::of(name, call))
        .or_else(|| moves::of(name, call))
        .or_else(|| pointwise::of(name, call))
}

impl Work {
    /// Whether the work consists of matrix products, which matrix units compute.
    pub fn is_product(&self) -> bool {
        self.family.level() == Level::Product
    }
}
