//! Checks sentences such as "no kernel was recorded" in a report against the counts in all reports.

use super::facts::{Facts, Subject, rows};
use Subject::*;
use serde_json::Value;

/// Things of which `findings` may say that none was recorded, or none in the steps.
const THINGS: [(&str, Subject); 11] = [
    ("kernel, copy or memset", Work),
    ("compute kernel", Computes),
    ("communication kernel", Communicates),
    ("copy between host and device", HostCopies),
    ("synchronous copy", SynchronousCopies),
    ("synchronous memset", SynchronousMemsets),
    ("CUDA or HIP runtime call", CudaCalls),
    ("call that waits for the device", Waits),
    ("call such as cudaMalloc or cudaFree", MemoryCalls),
    ("range with the name of a data loader", Loading),
    ("CPU sample in malloc or free", Samples),
];

/// Beginnings of other sentences that say that something was not recorded.
const DENIED: [(&str, Subject); 33] = [
    ("no kernel, copy or memset was recorded", Work),
    ("no CUDA or HIP call was recorded", Calls),
    ("no cuBLAS matrix multiplication was recorded", Gemms),
    ("no call with a recorded kernel or copy was recorded", Launches),
    ("no copy or memset ran", Copies),
    ("no copy or memset was recorded", Copies),
    ("no communication kernel ran", Communicates),
    ("no communication kernel was recorded", Communicates),
    ("no communication kernel and no collective on the host was recorded", Communicates),
    ("no compute kernel was recorded", Computes),
    ("no allocation of device memory was recorded", DeviceMemory),
    ("the totals of the framework's allocator were not recorded", DeviceTotals),
    ("no steps were recorded, and no sequence of launches", Steps),
    ("no steps were recorded, so gains are for", Steps),
    ("no operators, calls or device work were recorded", Work),
    ("no operators, calls or device work were recorded", Calls),
    ("no annotations or NVTX ranges were recorded", Ranges),
    ("the trace has no annotations on device streams", Images),
    ("no NVTX range was pushed and popped", Nvtx),
    ("no operators were recorded", Operators),
    ("no launch inside an operator was recorded with its work", OperatorLaunches),
    ("no operator with sizes of its inputs was recorded", OperatorSizes),
    ("no counters were recorded", Gauges),
    ("no hardware counters were recorded", HardwareCounters),
    ("no stream was idle", StreamGaps),
    ("the run has no CPU samples", Samples),
    ("no CPU sample in PyTorch's DataLoader was recorded", Samples),
    ("no RSS was sampled", Rss),
    ("allocations were not recorded", Heap),
    ("no collective was recorded, and no rank was sampled in one", Communicates),
    ("no work of a device was recorded", Work),
    ("no operation between ranks was recorded", Communicates),
    ("no steps are known", Steps),
];

/// Beginnings of sentences that this test can't check, because no report counts what they deny, or
/// the sentence denies only a part of it.
const UNCOUNTED: &[&str] = &[
    "none lies in the steps, only outside of them",
    "no figure changed for good",
    "no operator with known operations began in it",
    "no message has ",
    "no collective ran on the device ",
    "no counter was read in a step",
    "no range names a phase",
    "no compiled function was sampled",
    "no function of Python's interpreter was sampled",
    "no memory of a cgroup was recorded",
    "no process kept forked workers",
    "nothing followed the machine's errors",
    "no pass over a file is known",
    "no PSS was read",
    "no time is judged",
    "no GPU samples in this run",
    "no memory in use was read from the driver",
    "no steps were recorded on ",
    "no calls of modules were recorded (tprof run --modules",
    "there are no findings, or none has a moment",
    "no operator, call or annotation",
    "no collective was recorded on more than one rank",
    "no gap of ",
    "no misfit in the recording",
    "no step after the first ",
    "no finding: no rule measured a gain",
    "no NVTX range was started and ended",
    "no run of an operator with 3 kernels or more",
    "no stack was recorded with these allocations",
    "no cgroup memory ",
    "no count of OOM kills",
    "no virtual size was sampled",
    "no recorded block was freed",
    "no memory of the ",
    "no recorded process uses it",
    "no kernel in the steps is of a kind with",
    "no kernel from the first work on a device to the last is of a kind with",
    "no copy in the steps has a record",
    "no copy from the first work on a device to the last has a record",
    "no collective in which all ranks wait ",
    "no collective in which all ranks wait, and of which it is certain",
    "no two steps in a row in which ranks met",
    "no rank's stretch was longer than",
    "no block of a framework's allocator ",
    "no device memory was held at the peak",
    "no device memory of the process was recorded",
    "no request failed for lack of device memory",
    "no call for device memory failed at first",
    "no steps were recorded in which device memory",
    "no step differs from the median",
    "no steps: ",
    "no samples of GPU instructions were recorded",
    "no call on a file was recorded",
    "no call on a socket or pipe was recorded",
    "no stack with a line was taken",
    "no allocator ",
    "no kernel of these calls was recorded",
    "no kernel of it was recorded",
    "no kernel that an operator with a count launched",
    "no operator with sizes of its inputs has a formula",
    "no step with operators that count was recorded",
    "no peaks are known of ",
    "no device is named in the trace",
    "no time was recorded for it",
    "no compute kernel was launched in the steps",
    "no rank lost 5 % of its driving thread's time",
    "no call with its status was recorded",
    "no device memory was recorded as taken from the driver",
    "no asynchronous copy of pinned memory, or between devices",
    "no kernel in the steps was launched behind a copy",
    "no kernel from the first work on a device to the last was launched behind a copy",
];

/// A sentence, and the ranks that it is about.
struct Sentence {
    text: String,
    place: String,
    ranks: Ranks,
}

enum Ranks {
    All,
    One(String),
    /// This many ranks, which the sentence doesn't name.
    Some(usize),
}

/// Returns the sentences of all reports that contradict a report's count, and those for which this
/// test has no rule.
pub fn contradictions(reports: &Value, facts: &Facts) -> Vec<String> {
    sentences(reports)
        .iter()
        .filter_map(|claim| {
            Some(format!("{}: {}: {}", claim.place, claim.text, judge(claim, facts)?))
        })
        .collect()
}

fn judge(sentence: &Sentence, facts: &Facts) -> Option<String> {
    let text = sentence.text.as_str();
    for (thing, subject) in THINGS {
        let Some(rest) = text.strip_prefix("no ").and_then(|rest| rest.strip_prefix(thing)) else {
            continue;
        };
        if rest.starts_with(" was recorded") {
            return denied(sentence, subject, facts);
        }
        if rest.starts_with(" lies ") {
            return elsewhere(rest, sentence, subject, facts);
        }
    }
    let mut denials = DENIED.iter().filter(|(start, _)| text.starts_with(start)).peekable();
    if denials.peek().is_some() {
        return denials.find_map(|(_, subject)| denied(sentence, *subject, facts));
    }
    if text.starts_with("there is one rank") {
        return (facts.ranks.len() > 1).then(|| format!("there are {:?}", facts.ranks));
    }
    let denies = ["no ", "none", "nothing ", "there is no", "there are no"];
    let is_denial = denies.iter().any(|start| text.starts_with(start));
    let known = !is_denial || UNCOUNTED.iter().any(|start| text.starts_with(start));
    (!known).then(|| "claims.rs lacks what it denies".to_owned())
}

/// Checks a sentence that says that something was not recorded.
fn denied(sentence: &Sentence, subject: Subject, facts: &Facts) -> Option<String> {
    let has = |rank: &String| facts.on_rank(subject, rank) > 0.0;
    match &sentence.ranks {
        Ranks::All => {
            let (kind, amount) = facts.anywhere(subject)?;
            Some(format!("`{kind}` counts {amount} of {subject:?}"))
        }
        Ranks::One(rank) => has(rank).then(|| format!("{rank} has {subject:?}")),
        Ranks::Some(ranks) => {
            let without = facts.ranks.iter().filter(|rank| !has(rank)).count();
            (without < *ranks).then(|| format!("only {without} ranks lack {subject:?}"))
        }
    }
}

/// Checks a sentence that says that something was recorded outside of the analyzed part: it must
/// have been recorded, and the sentence must name the analyzed part.
fn elsewhere(rest: &str, sentence: &Sentence, subject: Subject, facts: &Facts) -> Option<String> {
    let has = |rank: &String| facts.on_rank(subject, rank) > 0.0;
    let with = facts.ranks.iter().filter(|rank| has(rank)).count();
    let wanted = match sentence.ranks {
        Ranks::All => facts.ranks.len(),
        Ranks::One(_) => 1,
        Ranks::Some(ranks) => ranks,
    };
    let stepped = facts.ranks.iter().filter(|rank| facts.on_rank(Steps, rank) > 0.0).count();
    if with < wanted {
        Some(format!("only {with} ranks have {subject:?}"))
    } else if rest.starts_with(" lies in the steps") && stepped < wanted {
        Some(format!("only {stepped} ranks have steps"))
    } else {
        None
    }
}

/// Returns the sentences in which reports say why something is missing.
fn sentences(reports: &Value) -> Vec<Sentence> {
    let mut all = Vec::new();
    for (kind, report) in reports.as_object().unwrap() {
        visit(report, kind, &Ranks::All, &mut all);
    }
    let ranks = reports["summary"]["ranks"].as_array().map_or(0, Vec::len);
    for (table, key) in [("not_checked", "why"), ("clear", "measured")] {
        for row in rows(&reports["findings"], table) {
            let number = |text: &str| text.split(' ').next().and_then(|first| first.parse().ok());
            let of = match (row["ranks"].as_u64(), row["on"].as_str()) {
                (Some(some), _) if some as usize == ranks => Ranks::All,
                (Some(some), _) => Ranks::Some(some as usize),
                (None, Some(on)) => match number(on) {
                    Some(some) if some == ranks => Ranks::All,
                    Some(some) => Ranks::Some(some),
                    None => Ranks::One(on.to_owned()),
                },
                (None, None) => panic!("a row without ranks: {row}"),
            };
            // One sentence may deny several things, and each is checked by itself.
            let of = &of;
            let parts = row[key].as_str().unwrap().split("; no ").enumerate();
            all.extend(parts.map(|(at, part)| Sentence {
                text: if at == 0 { part.to_owned() } else { format!("no {part}") },
                place: format!("findings.{table}"),
                ranks: of.copy(),
            }));
        }
    }
    all
}

impl Ranks {
    fn copy(&self) -> Ranks {
        match self {
            Ranks::All => Ranks::All,
            Ranks::One(rank) => Ranks::One(rank.clone()),
            Ranks::Some(ranks) => Ranks::Some(*ranks),
        }
    }
}

fn visit(value: &Value, path: &str, ranks: &Ranks, all: &mut Vec<Sentence>) {
    match value {
        Value::Object(object) => {
            let label = ["rank", "label"].iter().find_map(|key| object.get(*key)?.as_str());
            let of = label.map_or_else(|| ranks.copy(), |rank| Ranks::One(rank.to_owned()));
            for (key, value) in object {
                let path = format!("{path}.{key}");
                match value {
                    Value::String(text) if key.ends_with("_missing") => {
                        all.push(Sentence { text: text.clone(), place: path, ranks: of.copy() });
                    }
                    Value::Array(notes) if key == "notes" => {
                        let notes = notes.iter().filter_map(Value::as_str);
                        all.extend(notes.map(|text| Sentence {
                            text: text.to_owned(),
                            place: path.clone(),
                            ranks: of.copy(),
                        }));
                    }
                    value => visit(value, &path, &of, all),
                }
            }
        }
        Value::Array(array) => array.iter().for_each(|value| visit(value, path, ranks, all)),
        _ => {}
    }
}

/// Returns the denials that only the text of the reports has, or only their JSON.
pub fn unlike_text(reports: &Value, text: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    for (kind, report) in reports.as_object().unwrap() {
        visit(report, kind, &Ranks::All, &mut reasons);
    }
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut unlike = Vec::new();
    for paragraph in text.split("\n\n") {
        let paragraph = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((_, reason)) = paragraph.split_once(" none: ") else { continue };
        if !reasons.iter().any(|sentence| reason.starts_with(&sentence.text)) {
            unlike.push(format!("only in text: none: {reason}"));
        }
    }
    for (table, key) in [("not_checked", "why"), ("clear", "measured")] {
        for row in rows(&reports["findings"], table) {
            let cell = row[key].as_str().unwrap();
            let cell = cell.split_whitespace().collect::<Vec<_>>().join(" ");
            if !joined.contains(&cell) && cell.len() < 50 {
                unlike.push(format!("only in JSON: {cell}"));
            }
        }
    }
    unlike
}
