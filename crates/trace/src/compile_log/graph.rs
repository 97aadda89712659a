//! Counts the operators in the printed text of a graph.

use std::collections::BTreeMap;

/// The stage of compilation that a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GraphStage {
    /// The graph that Dynamo traced (`dynamo_output_graph`), which contains the program's calls.
    Traced,
    /// The graph from which Inductor generates code (`inductor_post_grad_graph`), which contains
    /// ATen operators.
    Lowered,
}

/// The operators of a graph by name, with the number of each.
pub type OperatorCounts = BTreeMap<String, u64>;

/// Maximum number of different operators of one graph. Calls of all further operators count under
/// one name.
const MAX_OPERATORS: usize = 10_000;
const OTHERS: &str = "(others)";

/// Counts the calls in the printed code of a graph, which are lines `name = call(…)`. Arguments,
/// attributes (`self.…`), submodules and other expressions aren't counted.
pub(super) fn count_operators(text: &str) -> OperatorCounts {
    let mut counts = OperatorCounts::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('#') || line.starts_with("return") || line.starts_with("def ") {
            continue;
        }
        if let Some(name) = assigned(line).and_then(operator) {
            let is_beyond = counts.len() >= MAX_OPERATORS && !counts.contains_key(&name);
            let name = if is_beyond { OTHERS.to_owned() } else { name };
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// Returns the right side of an assignment, which may have an annotation:
/// `y: "f32[4]" = x.sin(); x = None`.
pub(super) fn assigned(line: &str) -> Option<&str> {
    let name = line.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|&end| end > 0)?;
    let rest = line[name..].trim_start();
    if let Some(annotation) = rest.strip_prefix(':') {
        let text = annotation.trim_start();
        let text = match text.strip_prefix('"') {
            Some(quoted) => &quoted[quoted.find('"')? + 1..],
            None => text,
        };
        return text.trim_start().strip_prefix("= ");
    }
    rest.strip_prefix("= ")
}

/// Returns the operator that an expression calls; `None` if it isn't a call.
fn operator(expression: &str) -> Option<String> {
    let own = expression.split(';').next().unwrap_or(expression).trim_end();
    let Some(open) = own.find('(') else {
        // Python's operators, as Dynamo's graphs print them: `sum_1 > 0`, `x * 2`.
        let sign = own.split(' ').nth(1)?;
        let is_sign = !sign.is_empty() && sign.bytes().all(|byte| b"+-*/%@<>=!&|^".contains(&byte));
        return is_sign.then(|| sign.to_owned());
    };
    let callee = &own[..open];
    if callee.starts_with("self.") || callee == "getattr" || callee.is_empty() {
        return None;
    }
    let name = match callee.strip_prefix("torch.ops.") {
        Some(name) => name.to_owned(),
        None if callee.starts_with("torch") => callee.to_owned(),
        // A method of a value, such as `l_x_.sin`.
        None => format!(".{}", callee.rsplit('.').next().unwrap_or(callee)),
    };
    let is_name = |c: char| c.is_alphanumeric() || "._".contains(c);
    name.chars().all(is_name).then(|| name.chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_both_stages_are_counted() {
        let traced = "class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: \"f32[4]\"):\n        \
                      l_x_ = L_x_\n\n        # File: a.py:13 in f, code: y = x.sin()\n        \
                      y: \"f32[4][1]cpu\" = l_x_.sin();  l_x_ = None\n        \
                      gt: \"b8[][]cpu\" = y > 0;  y = None\n        \
                      z = torch.nn.functional.relu(gt)\n        return (gt, z)\n";
        let counts = count_operators(traced);
        let found: Vec<_> = counts.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(found, [(".sin", 1), (">", 1), ("torch.nn.functional.relu", 1)]);
        let lowered = "def forward(self, a):\n    sin: \"f32[4]\" = torch.ops.aten.sin.default(a);  a = None\n    \
                       b = torch.ops.aten.sin.default(sin)\n    return (b,)\n";
        let counts = count_operators(lowered);
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("aten.sin.default".to_owned(), 2)]);
    }
}
