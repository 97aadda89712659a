//! Tests the findings of runs of real GPU jobs whose truth is known. The true cause must come
//! first, with its line, and no false cause may be ranked high. The runs and the programs that made
//! them are in `gpu-runs`.

use serde_json::Value;
use tprof_tests::{Refused, document, gpu_run, skip};

/// What is known about a run.
struct Truth {
    run: &'static str,
    /// A sentence that describes the truth.
    truth: &'static str,
    /// Rules that report the truth, one of which must come first. Empty if nothing is wrong.
    first: &'static [&'static str],
    /// File and lines of the first finding, if a line is the cause.
    place: Option<(&'static str, [u64; 2])>,
    /// The text of the first finding must contain one of these.
    says: &'static [&'static str],
    /// Other rules that are true of the run, whatever their rank.
    true_too: &'static [&'static str],
    /// Rules that are false for the run, in addition to [`NEVER`]. If nothing is wrong with the job,
    /// all other rules are false.
    wrong: &'static [&'static str],
}

/// Rules that are false for every run: no job waits for a lock, and the idle time of each has a
/// cause.
const NEVER: &[&str] = &["LockContention", "LowUtilization", "GpuGaps"];
/// The cause occurs once, so this rule may not be ranked above causes in steps.
const ONCE: &str = "StartUp";

const TRUTHS: &[Truth] = &[
    Truth {
        run: "item_sync",
        truth: "nine .item() a step, each of which waits for the device and reads a value",
        first: &["SyncBound"],
        place: Some(("plant.py", [19, 20])),
        says: &["item"],
        true_too: &["LaunchBound", "HotFunction"],
        wrong: &[],
    },
    Truth {
        run: "launch_bound",
        truth: "an optimizer that is not fused: 3,200 kernels of 1 us a step",
        first: &["LaunchBound"],
        place: Some(("plant.py", [26, 27])),
        says: &[],
        true_too: &["HotFunction"],
        wrong: &[],
    },
    Truth {
        run: "churn",
        truth: "empty_cache() each step, so that device memory is freed and allocated anew",
        first: &["DeviceAllocations", "EmptyCache"],
        place: Some(("plant.py", [38, 38])),
        says: &["cudaFree", "empty_cache"],
        true_too: &["LaunchBound", "HotFunction"],
        wrong: &[],
    },
    Truth {
        run: "gpu_leak",
        truth: "each step keeps 20 to 35 MiB on the device",
        first: &["DeviceMemoryGrowth"],
        // PyTorch's thread for backward passes takes the memory, so no stack has the line that keeps
        // it.
        place: None,
        says: &["MiB"],
        true_too: &["LaunchBound", "HotFunction", "DeviceAllocations"],
        wrong: &["HeapGrowth"],
    },
    Truth {
        run: "small_batch",
        truth: "two rows a batch: kernels of 2 us",
        first: &["LaunchBound", "SmallBatches", "SmallBatch"],
        place: None,
        says: &["batch"],
        true_too: &["LaunchBound", "HotFunction"],
        wrong: &[],
    },
    Truth {
        run: "serial_streams",
        truth: "copies to the host behind the products on the same stream: nothing overlaps",
        first: &["ExposedCopies"],
        // No sample lies within a copy, so only the function is known.
        place: None,
        says: &["64.0 MiB", "cop"],
        true_too: &[],
        wrong: &["SyncBound", "HeapGrowth", "HotFunction"],
    },
    Truth {
        run: "graph",
        truth: "nothing is wrong: 500 replays of a graph, the device busy for 99 % of them",
        first: &[],
        place: None,
        says: &[],
        true_too: &[],
        wrong: &["LaunchBound", "DeviceAllocations"],
    },
    Truth {
        run: "healthy",
        truth: "nothing is wrong: large products in bf16",
        first: &[],
        place: None,
        says: &[],
        // Elementwise kernels take 7 % of the time and could be fused.
        true_too: &["UnoptimizedOp"],
        wrong: &["LaunchBound", "SyncBound"],
    },
    Truth {
        run: "oom",
        truth: "after 69 blocks of 2 GiB the device has no room for another",
        first: &["DeviceErrors", "OutOfDeviceMemory"],
        place: Some(("plant.py", [80, 80])),
        // The size of the failed request was not recorded.
        says: &["69 blocks"],
        // This job has no steps.
        true_too: &["HotFunction", ONCE],
        wrong: &[],
    },
    Truth {
        run: "res",
        truth: "ResNet-50 in fp16: the host launches more slowly than the device works",
        first: &["LaunchBound"],
        place: None,
        says: &[],
        true_too: &["HotFunction"],
        wrong: &["DataLoadBound", "DataWait"],
    },
    Truth {
        run: "gpt",
        truth: "an eager GPT of twelve layers: the host launches more slowly than the device works",
        first: &["LaunchBound"],
        place: None,
        says: &[],
        true_too: &["HotFunction"],
        wrong: &[],
    },
    Truth {
        run: "gpt_shapes",
        truth: "the same with its operators' shapes recorded",
        first: &["LaunchBound"],
        place: None,
        says: &[],
        true_too: &["HotFunction"],
        wrong: &[],
    },
    Truth {
        run: "nccl",
        truth: "the same as one rank of DDP, which exchanges nothing",
        first: &["LaunchBound"],
        place: None,
        says: &[],
        true_too: &["HotFunction"],
        wrong: &["ExposedCommunication"],
    },
    Truth {
        run: "gpt_compile",
        truth: "compilation takes 26 of 45 s; then the host launches too slowly",
        first: &["Compilation", "CompileTime", "CacheMiss", "CompileInSteadyState", ONCE],
        place: None,
        says: &["ompil"],
        true_too: &["LaunchBound", "HotFunction", "CacheMiss", "Recompilation"],
        wrong: &["ForkedCopies"],
    },
    Truth {
        run: "jax",
        truth: "XLA compiles and tunes for 1.2 of 1.49 s; then there are 50 calls",
        first: &["Compilation", "CompileTime", "CompileInSteadyState", "GpuGaps", ONCE],
        place: None,
        says: &["ompil"],
        // The recorded calls show both of these causes.
        true_too: &["HotFunction", "LaunchBound"],
        wrong: &[],
    },
    Truth {
        run: "cupy",
        truth: "50 products and tanh of float32, without tensor cores",
        first: &["UnoptimizedOp"],
        place: None,
        says: &["fp32", "float32"],
        true_too: &[],
        wrong: &["SyncBound"],
    },
];

impl Truth {
    /// Returns the highest rank that a rule may have.
    fn most(&self, rule: &str) -> &'static str {
        if self.first.contains(&rule) || self.true_too.contains(&rule) {
            "critical"
        } else if rule == ONCE {
            "medium"
        } else if self.first.is_empty() || NEVER.contains(&rule) || self.wrong.contains(&rule) {
            "low"
        } else {
            "medium"
        }
    }

    /// Returns the faults in the findings of this run.
    fn faults(&self, findings: &[Value]) -> Vec<String> {
        let mut faults = Vec::new();
        match findings.first() {
            _ if self.first.is_empty() => (),
            Some(first) => faults.extend(self.faults_of_first(first)),
            None => faults.push("there is no finding".to_owned()),
        }
        for row in findings {
            let (rule, severity) = (text(row, "rule"), text(row, "severity"));
            let most = self.most(rule);
            if rank_of(severity) > rank_of(most) {
                faults.push(format!("{rule} is {severity}, and may be {most} at most"));
            }
        }
        faults
    }

    fn faults_of_first(&self, first: &Value) -> Vec<String> {
        let rule = text(first, "rule");
        if !self.first.contains(&rule) {
            return vec![format!("first is {rule} and not {}", self.first.join(" or "))];
        }
        let mut faults = Vec::new();
        if let Some((file, [from, to])) = self.place {
            let (of, line) = (text(first, "file"), first["line"].as_u64());
            let is_there = of.ends_with(file) && line.is_some_and(|at| (from..=to).contains(&at));
            if !is_there {
                faults.push(format!("{rule} is at {of}:{line:?} and not {file}:{from} to {to}"));
            }
        }
        let words = ["headline", "what", "seen", "try", "subject"].map(|key| text(first, key));
        let words = words.join(" ");
        if !self.says.is_empty() && !self.says.iter().any(|word| words.contains(word)) {
            faults.push(format!("{rule} says nothing of {}: {words}", self.says.join(" or ")));
        }
        faults
    }
}

fn text<'v>(row: &'v Value, key: &str) -> &'v str {
    row[key].as_str().unwrap_or_default()
}

fn rank_of(severity: &str) -> usize {
    let order = ["low", "medium", "high", "critical"];
    order.iter().position(|of| *of == severity).unwrap_or_else(|| panic!("severity {severity:?}"))
}

#[test]
fn the_truth_of_each_job_comes_first_and_nothing_false_is_ranked_high() {
    let (mut judged, mut wrong) = (0, Vec::new());
    for truth in TRUTHS {
        let Some(run) = gpu_run(truth.run) else {
            skip(Refused::RealTraces);
            continue;
        };
        judged += 1;
        let report = document("findings", &run);
        let findings = report["tables"]["findings"].as_array().unwrap();
        let faults = truth.faults(findings);
        if !faults.is_empty() {
            wrong.push(format!("{}: {}\n  {}", truth.run, truth.truth, faults.join("\n  ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {judged} runs are misjudged:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
