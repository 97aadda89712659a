//! Collects facts about the hardware and the configuration of a run. Two runs of the same code may
//! differ in these facts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tprof_trace::{RunDir, TraceFile};

/// Facts by key. A fact has several values if the ranks or hosts of the run don't agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<String, BTreeSet<String>>);

impl Facts {
    /// Adds a value of a fact.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.entry(key.to_owned()).or_default().insert(value.into());
    }

    /// Adds all facts of `other`.
    pub fn merge(&mut self, other: Facts) {
        for (key, values) in other.0 {
            self.0.entry(key).or_default().extend(values);
        }
    }

    /// Returns the values of a fact, separated by commas; empty if the fact is not known.
    pub fn text(&self, key: &str) -> String {
        let values = self.0.get(key).into_iter().flatten();
        values.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Returns the keys whose values differ, including keys that only one side has.
    pub fn differences<'a>(&'a self, other: &'a Facts) -> Vec<&'a str> {
        let keys: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        keys.into_iter()
            .filter(|key| self.0.get(*key) != other.0.get(*key))
            .map(|key| key.as_str())
            .collect()
    }

    /// Returns the keys of the hardware facts that both sides have, but with different values.
    pub fn other_hardware(&self, other: &Facts) -> Vec<&'static str> {
        let differ = |key: &&str| match (self.0.get(*key), other.0.get(*key)) {
            (Some(a), Some(b)) => a != b,
            // If one side lacks a fact, the two sides may still agree in it.
            _ => false,
        };
        HARDWARE.into_iter().filter(differ).collect()
    }

    /// Adds the leaves of a JSON value below `key`. Keys of nested objects are joined by dots.
    fn json(&mut self, key: &str, value: &Value) {
        match value {
            Value::Object(object) => {
                for (inner, value) in object {
                    self.json(&format!("{key}.{inner}"), value);
                }
            }
            Value::Null => (),
            Value::String(text) => self.set(key, text.clone()),
            other => self.set(key, other.to_string()),
        }
    }
}

/// Keys of the facts about hardware. The time of the same code depends on these.
const HARDWARE: [&str; 5] = [
    "device",
    "device.compute_capability",
    "device.multiprocessors",
    "machine.cpu",
    "machine.cpus",
];
/// Keys of `distributedInfo` that differ by rank and do not describe the job.
const OF_A_RANK: [&str; 2] = ["rank", "pg_config"];
/// Properties of a device that the file's table of devices contains too, or that identify one
/// device among equal ones.
const SHOWN_ELSEWHERE: [&str; 7] =
    ["id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms", "uuid"];

/// Returns the facts that the collectors recorded: command, options, hosts, machine.
pub(super) fn of_run(run: &RunDir) -> Facts {
    let mut facts = Facts::default();
    for info in run.infos() {
        if !info.command.is_empty() {
            facts.set("command", info.command.join(" "));
        }
        if !info.host.is_empty() {
            facts.set("host", info.host.clone());
        }
        if !info.tprof.is_empty() {
            facts.set("tprof", info.tprof.clone());
        }
        facts.json("machine", &info.machine);
        let mut options = info.options.clone();
        // Leave out what the reader sees elsewhere: the names of the two sides show the imported
        // files and the run's directory, and the command is a fact of its own.
        if let Some(options) = options.as_object_mut() {
            ["imported", "output", "command"].iter().for_each(|key| drop(options.remove(*key)));
        }
        facts.json("option", &options);
    }
    facts
}

/// Returns the facts of a rank's file: its devices, and what an imported trace says about its job.
pub(super) fn of_file(file: &TraceFile) -> Facts {
    let mut facts = Facts::default();
    for device in file.devices() {
        let name = file.name(device.name);
        if !name.is_empty() {
            facts.set("device", name);
        }
        if let Some(bytes) = device.memory_bytes {
            facts.set("device.memory_bytes", bytes.to_string());
        }
        if let Some(processors) = device.processors {
            facts.set("device.multiprocessors", processors.to_string());
        }
        if let (Some(major), Some(minor)) = (device.compute_major, device.compute_minor) {
            facts.set("device.compute_capability", format!("{major}.{minor}"));
        }
    }
    for (key, value) in file.properties() {
        let Ok(value) = serde_json::from_str::<Value>(value) else { continue };
        match (key, &value) {
            ("distributedInfo", Value::Object(object)) => {
                for (key, value) in
                    object.iter().filter(|(key, _)| !OF_A_RANK.contains(&key.as_str()))
                {
                    facts.json(&format!("distributed.{key}"), value);
                }
            }
            ("deviceProperties", Value::Array(devices)) => {
                for device in devices.iter().filter_map(Value::as_object) {
                    for (key, value) in device {
                        if !SHOWN_ELSEWHERE.contains(&key.as_str()) {
                            facts.json(&format!("device.{key}"), value);
                        }
                    }
                }
            }
            // tprof's importer writes these properties for its own use.
            (key, _) if key.starts_with("tprof.") => (),
            // These properties name or date a single trace, so they always differ.
            ("traceName" | "baseTimeNanoseconds" | "displayTimeUnit" | "trace_id", _) => (),
            (_, Value::Array(_)) => (),
            (key, value) => facts.json(key, value),
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::Property;

    use super::*;

    fn file(properties: &[(&str, &str)]) -> TraceFile {
        let mut made = Fixture::new();
        for (key, value) in properties {
            let (key, value) = (made.name(key), made.name(value));
            made.writer.property(Property { key, value });
        }
        made.finish()
    }

    #[test]
    fn differences_ignore_facts_that_only_distinguish_ranks() {
        let a = of_file(&file(&[
            ("distributedInfo", r#"{"backend":"nccl","rank":0,"world_size":8}"#),
            (
                "deviceProperties",
                r#"[{"id":0,"name":"A100","warpSize":32},{"id":1,"name":"A100","warpSize":32}]"#,
            ),
            ("traceName", r#""/tmp/a.json""#),
            ("with_stack", "1"),
        ]));
        let b = of_file(&file(&[
            ("distributedInfo", r#"{"backend":"nccl","rank":1,"world_size":2}"#),
            ("deviceProperties", r#"[{"id":0,"name":"V100","warpSize":64}]"#),
            ("traceName", r#""/tmp/b.json""#),
        ]));
        assert_eq!(a.differences(&b), ["device.warpSize", "distributed.world_size", "with_stack"]);
        assert_eq!(
            (a.text("device.warpSize"), b.text("device.warpSize")),
            ("32".into(), "64".into())
        );
        assert_eq!((a.text("with_stack"), b.text("with_stack")), ("1".into(), String::new()));
        assert_eq!(a.differences(&a.clone()), Vec::<&str>::new());
    }

    #[test]
    fn hardware_differs_only_if_both_sides_have_the_fact() {
        let of = |facts: &[(&str, &str)]| {
            let mut all = Facts::default();
            facts.iter().for_each(|(key, value)| all.set(key, *value));
            all
        };
        let a = of(&[("device", "A100"), ("machine.cpus", "8"), ("command", "x")]);
        let b = of(&[("device", "V100"), ("machine.cpus", "8"), ("command", "y")]);
        assert_eq!(a.other_hardware(&b), ["device"]);
        assert!(a.other_hardware(&of(&[("machine.cpu", "Zen")])).is_empty());
        assert_eq!(a.other_hardware(&of(&[("machine.cpus", "2")])), ["machine.cpus"]);
    }
}
