//! `gpu`: reports what the GPUs' management library measured from outside the job: utilization,
//! memory, clocks, power, temperature and throttling.

mod device;
mod samples;
mod series;
mod tables;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

use device::DeviceSamples;
pub use device::{SampledGpu, sampled};
pub use samples::{FileSamples, of_file};
use samples::{hosts, missing};
use tables::{devices_table, readings_table, throttling_table};

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
    type Part = FileSamples;

    fn needs(&self, _: &Options) -> Needs {
        Needs::default()
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> FileSamples {
        of_file(rank.file)
    }

    fn join(&self, parts: Vec<(RankContext, FileSamples)>, _: &Options) -> Body {
        let hosts = hosts(&parts);
        let why = missing(&hosts);
        let mut tables = [devices_table(&why), throttling_table(&why), readings_table(&why)];
        for (name, host) in &hosts {
            for facts in host.devices() {
                let device = DeviceSamples { host, facts };
                tables[0].row(device.cells(name));
                device.throttling(name, &mut tables[1]);
                device.readings(name, &mut tables[2]);
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
        Body { tables: tables.into(), notes }
    }
}
