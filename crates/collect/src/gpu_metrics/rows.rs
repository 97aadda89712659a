//! Writes the samples of devices to the files of the processes that use them.

use super::frames::{DeviceNews, SampleBatch};
use super::link::{MetricsLink, MetricsMessage};
use crate::output::files::{Files, OpenFile};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tprof_os::sys;
use tprof_trace::model::{Counter, Property};

/// Name of the property that says what was sampled.
const PROPERTY: &str = "gpu_metrics";
/// Least time between two writes of that property, ns.
const FACTS_NS: u64 = 1_000_000_000;

/// The state of a device that is sampled.
#[derive(Debug, Default)]
struct SampledDevice {
    news: DeviceNews,
    /// From this time on, samples take the place of NVML's means, ns.
    replaces_ns: u64,
    /// Beginning of the first sample that was written, ns.
    since_ns: Option<u64>,
    /// End of the last sample that was written, ns.
    end_ns: Option<u64>,
    /// Time between samples that were written in which there are none, ns.
    lost_ns: u64,
    /// Whether the end of the last sample was written, because none follows.
    is_stopped: bool,
}

/// The samples that are not written to files yet, and the devices that are sampled.
pub struct MetricsRows {
    interval: Duration,
    link: Option<MetricsLink>,
    /// The devices that were asked for.
    wanted: BTreeSet<String>,
    /// The devices, by CUDA's number.
    devices: BTreeMap<u32, SampledDevice>,
    /// Devices that can't be sampled, each with the reason.
    refused: BTreeMap<String, String>,
    ended: Option<String>,
    waiting: Vec<SampleBatch>,
    facts: Value,
    facts_ns: u64,
    /// For each file, how many facts there were when it last got them.
    written: Vec<u64>,
    version: u64,
}

impl MetricsRows {
    /// Makes rows of what a link delivers.
    pub fn new(interval: Duration, link: Option<MetricsLink>) -> MetricsRows {
        let ended = link.is_none().then(|| "a thread could not be started".to_owned());
        MetricsRows {
            interval,
            link,
            wanted: BTreeSet::new(),
            devices: BTreeMap::new(),
            refused: BTreeMap::new(),
            ended,
            waiting: Vec::new(),
            facts: Value::Null,
            facts_ns: 0,
            written: Vec::new(),
            version: 0,
        }
    }

    /// Handles a message. Samples from while recording is off are left out.
    pub fn take(&mut self, message: MetricsMessage, recording: bool) {
        match message {
            MetricsMessage::News(news) => match (&news.why_not, news.chip.is_empty()) {
                (Some(why), true) => {
                    self.refused.insert(news.device, why.clone());
                }
                _ => {
                    let device = self.devices.entry(news.index).or_insert_with(|| SampledDevice {
                        replaces_ns: sys::monotonic_ns(),
                        ..SampledDevice::default()
                    });
                    device.news = news;
                }
            },
            MetricsMessage::Samples(batch, _) if recording => self.waiting.push(batch),
            MetricsMessage::Samples(..) => {}
            MetricsMessage::Ended(why) => self.ended = Some(why),
        }
    }

    /// Asks for the devices that the files' processes use. `pids` are the job's processes.
    pub fn follow(&mut self, files: &Files, pids: impl Fn() -> Vec<u32>) {
        let Some(link) = &self.link else { return };
        for device in files.open.iter().flat_map(|file| &file.devices) {
            if !device.is_empty() && !self.wanted.contains(device) {
                self.wanted.insert(device.clone());
                link.use_device(device.clone(), pids());
            }
        }
    }

    /// Ends sampling, and waits until all samples have been delivered.
    pub fn finish(&mut self) {
        if let Some(link) = self.link.take() {
            link.finish();
        }
    }

    /// Whether samples tell this counter of a device at a time, so that NVML's means don't.
    pub fn replaces(&self, device: &str, name: &str, time_ns: u64) -> bool {
        let sampled = self.devices.values().find(|known| known.news.device == device);
        sampled.is_some_and(|known| {
            let is_on = known.news.why_not.is_none() && self.ended.is_none();
            is_on
                && time_ns >= known.replaces_ns
                && known.news.metrics.iter().any(|(known, _)| known == name)
        })
    }

    /// Writes the waiting samples. `index_of` returns NVML's number of a device. `is_last`: nothing
    /// follows.
    pub fn write(
        &mut self,
        files: &mut Files,
        index_of: impl Fn(&str) -> Option<u32>,
        is_last: bool,
    ) {
        if files.open.is_empty() {
            // The job has no file yet, so nobody uses a device.
            return;
        }
        for batch in std::mem::take(&mut self.waiting) {
            let Some(device) = self.devices.get_mut(&batch.index) else { continue };
            device.write(batch, self.interval, files, &index_of);
        }
        let all_end = is_last || self.ended.is_some();
        for device in self.devices.values_mut() {
            if all_end || device.news.why_not.is_some() {
                device.stop(files, &index_of);
            }
        }
        self.write_facts(files, is_last);
    }

    fn write_facts(&mut self, files: &mut Files, is_last: bool) {
        let now = sys::monotonic_ns();
        if !is_last && now < self.facts_ns + FACTS_NS {
            return;
        }
        let facts = self.facts();
        if facts != self.facts {
            (self.facts, self.facts_ns, self.version) = (facts, now, self.version + 1);
        }
        self.written.resize(files.open.len(), 0);
        for (file, written) in files.open.iter_mut().zip(&mut self.written) {
            if *written < self.version {
                *written = self.version;
                let key = file.writer.name(PROPERTY);
                let value = file.writer.name(&self.facts.to_string());
                file.writer.property(Property { key, value });
            }
        }
    }

    fn facts(&self) -> Value {
        let sampled = self.devices.values().map(|device| {
            let mut facts = json!(device.news);
            facts["metrics"] = device
                .news
                .metrics
                .iter()
                .cloned()
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect();
            facts["lost_ns"] = device.lost_ns.into();
            (facts["since_ns"], facts["until_ns"]) = (device.since_ns.into(), device.end_ns.into());
            facts
        });
        let refused =
            self.refused.iter().map(|(device, why)| json!({ "device": device, "why_not": why }));
        json!({
            "interval_ns": self.interval.as_nanos() as u64,
            "ended": self.ended,
            "devices": sampled.chain(refused).collect::<Vec<_>>(),
        })
    }
}

impl SampledDevice {
    fn write(
        &mut self,
        batch: SampleBatch,
        interval: Duration,
        files: &mut Files,
        index_of: &impl Fn(&str) -> Option<u32>,
    ) {
        let number = index_of(&self.news.device).unwrap_or(self.news.index);
        let most_ns = interval.as_nanos() as u64 / 2;
        for sample in batch.samples {
            // CUPTI's times of the end of a sample and of the beginning of the next may differ.
            let gap_ns = self.end_ns.map(|end| sample.start_ns.saturating_sub(end));
            if let (Some(end_ns), Some(gap_ns)) = (self.end_ns, gap_ns)
                && gap_ns > most_ns
            {
                self.lost_ns += gap_ns;
                self.end(number, end_ns, files);
            }
            self.since_ns = self.since_ns.or(Some(sample.start_ns));
            self.end_ns = Some(sample.end_ns);
            self.rows(number, sample.start_ns, &sample.values, files);
        }
    }

    /// Notes that the last sample ended at a time, after which nothing is known until the next one.
    fn end(&self, number: u32, time_ns: u64, files: &mut Files) {
        self.rows(number, time_ns, &vec![f64::NAN; self.news.metrics.len()], files);
    }

    fn rows(&self, number: u32, time_ns: u64, values: &[f64], files: &mut Files) {
        for ((name, _), value) in self.news.metrics.iter().zip(values) {
            let (value, device) = (*value, Some(number));
            for file in self.files(files) {
                let name = file.writer.name(name);
                file.counter(Counter { time_ns, process: None, device, name, value });
            }
        }
    }

    fn stop(&mut self, files: &mut Files, index_of: &impl Fn(&str) -> Option<u32>) {
        if let Some(end_ns) = self.end_ns.filter(|_| !self.is_stopped) {
            self.is_stopped = true;
            let number = index_of(&self.news.device).unwrap_or(self.news.index);
            self.end(number, end_ns, files);
        }
    }

    /// The files of the processes that use the device.
    fn files<'f>(&'f self, files: &'f mut Files) -> impl Iterator<Item = &'f mut OpenFile> {
        files.open.iter_mut().filter(|file| file.devices.contains(&self.news.device))
    }
}
