//! Reads which lines of the program each kernel comes from, from the artifact
//! `inductor_provenance_tracking_kernel_stack_traces`. PyTorch writes it only if
//! INDUCTOR_PROVENANCE is set.

use super::json::FirstTexts;
use super::texts::short;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;

/// Maximum number of kernels that are read of one graph.
const MAX_KERNELS: usize = 20_000;

/// The lines of the program that a kernel comes from, as `FILE:LINE`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelLines {
    pub kernel: String,
    pub places: Vec<String>,
}

/// Parses a payload: `{"triton_poi_fused_add_0:1": ["  File \"/job.py\", line 15, in f\n x + y"]}`.
/// The number after a kernel's name tells the kernel's calls apart. Also returns how many stacks
/// were left out.
pub(super) fn parse(payload: &str) -> (Vec<KernelLines>, u64) {
    let mut json = serde_json::Deserializer::from_str(payload);
    json.deserialize_map(StacksVisitor).unwrap_or_default()
}

struct StacksVisitor;

impl<'de> Visitor<'de> for StacksVisitor {
    type Value = (Vec<KernelLines>, u64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stacks by kernel")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut left_out) = (Vec::new(), 0);
        while let Some((name, stacks)) = map.next_entry::<String, FirstTexts>()? {
            left_out += stacks.more;
            if found.len() >= MAX_KERNELS {
                left_out += 1;
                continue;
            }
            let places = stacks.texts.iter().filter_map(|stack| innermost(stack)).collect();
            found.push(KernelLines { kernel: short(without_call(&name)), places });
        }
        Ok((found, left_out))
    }
}

fn without_call(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((kernel, call)) if call.bytes().all(|byte| byte.is_ascii_digit()) => kernel,
        _ => name,
    }
}

/// Returns the place of the innermost frame, which Python writes last.
fn innermost(stack: &str) -> Option<String> {
    let line = stack.lines().rev().find_map(|line| line.trim().strip_prefix("File \""))?;
    let (file, rest) = line.rsplit_once("\", line ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| short(&format!("{file}:{digits}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_the_innermost_line_of_each_stack() {
        let payload = r#"{"triton_poi_fused_add_0:1": ["  File \"/a b/job.py\", line 20, in main\n    f(x)\n  File \"/a b/job.py\", line 15, in f\n    x + \", line 9\n", "no stack"],
            "extern_kernels.mm:22": ["File \"m.py\", line 3\n"], "k": []}"#;
        let (found, left_out) = parse(payload);
        let found: Vec<_> =
            found.iter().map(|one| (one.kernel.as_str(), one.places.join(" "))).collect();
        let expected = [
            ("triton_poi_fused_add_0", "/a b/job.py:15"),
            ("extern_kernels.mm", "m.py:3"),
            ("k", ""),
        ];
        assert_eq!(found, expected.map(|(kernel, lines)| (kernel, lines.to_owned())));
        assert_eq!(left_out, 0);
    }

    #[test]
    fn a_payload_in_an_unknown_form_has_no_kernels() {
        for payload in ["", "[]", "null", "{\"a\": 1}", "{\"a\": [\"File"] {
            assert_eq!(parse(payload).0, [], "{payload}");
        }
    }
}
