//! `gpu`: reports what the GPUs' management library measured from outside the job: utilization,
//! memory, clocks, power, temperature, throttling, what the devices' units did, and energy.

mod activity;
mod device;
mod samples;
mod sampling;
mod series;
mod tables;
mod units_table;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, View, boxed};
use tprof_rank::{Needs, RankTrace, WINDOW_NEEDS};

pub(crate) use activity::{Activity, DeviceReadings};
use device::DeviceSamples;
pub use device::{SampledGpu, sampled};
pub(crate) use samples::means;
pub use samples::{FileSamples, of_file};
use samples::{hosts, missing};
use tables::{devices_table, readings_table, throttling_table};
use units_table::{JudgedDevice, JudgedRank, units_tables};

/// The report `gpu`.
pub const KIND: DocumentKind = DocumentKind {
    name: "gpu",
    about: "GPUs from outside: utilization, memory, clocks, power, heat",
    analysis: || boxed(Devices),
};

/// Readings of devices: `tprof report gpu`.
struct Devices;

impl Analysis for Devices {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = (FileSamples, Vec<JudgedDevice>);

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> Self::Part {
        (of_file(rank.file), JudgedDevice::of(rank))
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, options: &Options) -> Body {
        let (samples, judged): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|(at, (samples, devices))| {
                let judged =
                    JudgedRank { rank: at.label.clone(), host: samples.host.clone(), devices };
                ((at, samples), judged)
            })
            .unzip();
        let hosts = hosts(&samples);
        let why = missing(&hosts);
        let ([units, links], why_not) = units_tables(&hosts, &judged, &why);
        let (sampling, of_sampling) = sampling::sampling(&hosts);
        let mut tables =
            vec![devices_table(&why), units, links, throttling_table(&why), readings_table(&why)];
        for (name, host) in &hosts {
            for facts in host.devices() {
                let device = DeviceSamples { host, facts };
                tables[0].row(device.cells(name));
                device.throttling(name, &mut tables[3]);
                device.readings(name, &mut tables[4]);
            }
        }
        let mut notes = Vec::new();
        if tables.iter().any(|table| !table.rows.is_empty()) {
            for (name, host) in &hosts {
                notes.extend(host.missing().map(|why| format!("{name} has no readings: {why}")));
                if host.devices().any(|facts| facts["used_includes_reserved"] == true) {
                    notes.push(format!(
                        "{name}: memory in use includes the driver's own reserve, which this \
                         driver does not report apart"
                    ));
                }
            }
        }
        notes.extend(why_not);
        notes.extend(of_sampling);
        if !sampling.rows.is_empty() {
            tables.push(sampling);
        } else if options.data {
            tables.push(sampling.view(View::Data));
        }
        Body { tables, notes }
    }
}
