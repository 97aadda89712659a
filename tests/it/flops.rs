//! Compares operations that tprof computes from sizes with `torch.utils.flop_counter`.
//! `scripts/flops/fixture.py` made the traces and counts of the same models with PyTorch 2.15.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{Scratch, tprof};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/flops");

fn imported(job: &str, scratch: &Scratch) -> PathBuf {
    let run = scratch.join("run");
    let trace = format!("{FOLDER}/{job}.json.gz");
    let outcome = tprof(["import", "-q", &trace, "-o"]).arg(&run).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    run
}

fn report(kind: &str, run: &Path, options: &[&str]) -> Value {
    let outcome = tprof(["report", kind, "--json"]).arg(run).args(options).run_in(".");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Returns operations by operator, with torch's names of the operators that it counts.
fn by_operator(report: &Value) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in report["tables"]["operators"].as_array().unwrap() {
        let name = row["operator"].as_str().unwrap();
        let name = name.strip_prefix("aten::").unwrap_or(name);
        // A convolution calls a library's operator, which the report counts and torch's counter
        // doesn't see. The inner operator is counted under the outer one's name.
        let is_inner = name.contains("conv") && !name.ends_with("_backward");
        let name = if is_inner { "convolution" } else { name };
        *sums.entry(format!("aten.{name}")).or_default() += row["flops"].as_u64().unwrap();
    }
    sums
}

fn counts(job: &str) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{job}.counts.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn operations_of_models_are_those_that_pytorch_counts() {
    let jobs =
        ["mlp", "residual", "convolutions", "encoder", "attention", "products", "recomputed"];
    for job in jobs {
        let scratch = Scratch::new();
        let found = by_operator(&report("flops", &imported(job, &scratch), &[]));
        for (operator, flops) in counts(job) {
            assert_eq!(found.get(&operator), Some(&flops), "{job}: {operator}");
        }
    }
}

#[test]
fn recomputed_operations_count_in_hfu_and_not_in_mfu() {
    let of = |job: &str| {
        let scratch = Scratch::new();
        let report = report("flops", &imported(job, &scratch), &["--peaks", "fp32=1T,memory=1T"]);
        let rank = report["tables"]["ranks"][0].clone();
        let share = |key: &str| rank[key].as_f64().unwrap();
        (rank["recomputed_flops"].as_u64().unwrap(), share("mfu"), share("hfu"))
    };
    // Two steps, in each of which two layers run again, with two products each and a function of 8
    // x 32 elements.
    let (recomputed, mfu, hfu) = of("recomputed");
    assert_eq!(recomputed, 2 * 2 * (2 * 2 * 8 * 16 * 32 + 8 * 32));
    assert!(mfu < hfu, "{mfu} {hfu}");
    let (recomputed, mfu, hfu) = of("encoder");
    assert_eq!((recomputed, mfu), (0, hfu));
}

#[test]
fn causal_masks_and_groups_need_fewer_operations_than_torch_counts() {
    let sums = |job: &str, operator: &str| {
        let scratch = Scratch::new();
        let report = report("flops", &imported(job, &scratch), &[]);
        let rows = report["tables"]["operators"].as_array().unwrap();
        let of = rows.iter().filter(|row| row["operator"] == operator);
        let both = of.map(|row| ["flops", "needed_flops"].map(|key| row[key].as_u64().unwrap()));
        both.fold([0, 0], |sums, both| [sums[0] + both[0], sums[1] + both[1]])
    };
    // Two of three calls in a step are causal, over 12 positions, so they need 13 of 24 pairs.
    let [flops, needed] = sums("attention", "aten::_scaled_dot_product_flash_attention_for_cpu");
    assert_eq!(needed * 36, flops * (13 + 13 + 24) / 2, "{needed} of {flops}");
    let [flops, needed] = sums("convolutions", "aten::convolution_backward");
    assert!(needed < flops, "{needed} of {flops}");
}

#[test]
fn sizes_are_exported_once_each_with_their_counts() {
    let scratch = Scratch::new();
    let run = imported("attention", &scratch);
    let file = scratch.join("shapes.json");
    let outcome = tprof(["export", "--to", "shapes", "-o"]).arg(&file).arg(&run).run_in(".");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let shapes: Value = serde_json::from_str(&text).unwrap();
    let shapes = shapes["shapes"].as_array().unwrap();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for shape in shapes {
        let number = |key: &str| shape[key].as_u64().unwrap();
        let name = shape["operator"].as_str().unwrap().replace("::", ".");
        *sums.entry(name).or_default() += number("runs") * number("flops_per_run");
        assert!(shape["input_shapes"].is_array(), "{shape}");
    }
    for (operator, flops) in counts("attention") {
        assert_eq!(sums[&operator], flops, "{operator}");
    }
    let mut keys: Vec<String> = (shapes.iter())
        .map(|one| {
            let of = |key: &str| one[key].to_string();
            ["operator", "input_shapes", "input_types", "input_values"].map(of).join(" ")
        })
        .collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all);
    assert_eq!(
        tprof(["export", "--to", "shapes", "-o"]).arg(&file).arg(&run).run_in(".").code,
        Some(125)
    );
}
