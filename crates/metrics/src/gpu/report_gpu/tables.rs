//! Makes the tables of the report `gpu`.

use tprof_document::{Cell, Column, Table, Unit, View};
use tprof_facts::clock_reasons::{REASONS, slowing};
use tprof_trace::model::counter::*;

use super::device::{DeviceSamples, UNKNOWN};
use super::samples::{COUNTERS, counters};
use super::series::SeriesStats;

impl DeviceSamples<'_> {
    /// Returns a statistic of a quantity as a cell, with the reason if it is missing.
    fn cell(&self, name: &'static str, of: impl Fn(SeriesStats) -> f64) -> Cell {
        Cell::known(self.sums(name).map(of), self.why(name))
    }

    pub(super) fn cells(&self, host: &str) -> Vec<Cell> {
        let text = |key: &str| self.facts[key].as_str();
        let visible = self.visible_to();
        let readings = COUNTERS.iter().filter_map(|name| Some(self.series(name)?.len())).max();
        let bytes = |value: f64| value as u64;
        let most = self.sums(GPU_MEMORY_BYTES).map(|sums| bytes(sums.max));
        let throttled = self.throttled(slowing());
        let unknown = UNKNOWN;
        vec![
            host.into(),
            self.index().into(),
            Cell::known(text("uuid").filter(|uuid| !uuid.is_empty()), unknown),
            Cell::known(text("pci"), unknown),
            Cell::known(self.host.facts.and_then(|facts| facts["driver"].as_str()), unknown),
            readings.unwrap_or(0).into(),
            self.cell(GPU_UTILIZATION, |sums| sums.mean),
            self.cell(GPU_UTILIZATION, |sums| sums.max),
            self.cell(GPU_MEMORY_UTILIZATION, |sums| sums.mean),
            Cell::known(most, self.why(GPU_MEMORY_BYTES)),
            Cell::known(self.facts["memory_bytes"].as_u64(), unknown),
            self.cell(GPU_SM_CLOCK, |sums| (sums.mean / 1e6).round()),
            self.cell(GPU_SM_CLOCK, |sums| sums.min / 1e6),
            self.cell(GPU_SM_CLOCK, |sums| sums.max / 1e6),
            Cell::known(self.facts["highest_sm_clock_hz"].as_f64().map(|hz| hz / 1e6), unknown),
            self.cell(GPU_MEMORY_CLOCK, |sums| (sums.mean / 1e6).round()),
            self.cell(GPU_POWER, |sums| sums.mean),
            self.cell(GPU_POWER, |sums| sums.max),
            Cell::known(self.facts["power_limit_watts"].as_f64(), unknown),
            self.cell(GPU_TEMPERATURE, |sums| sums.max),
            Cell::known(throttled, self.why(GPU_THROTTLE)),
            Cell::known(visible.map(|words| words.join(", ")), "no recorded process uses it"),
            Cell::known(text("name"), unknown),
        ]
    }

    pub(super) fn throttling(&self, host: &str, table: &mut Table) {
        for (at, (reason, slows)) in REASONS.iter().enumerate() {
            match self.throttled(1 << at) {
                Some(share) if share > 0.0 => table.row(vec![
                    host.into(),
                    self.index().into(),
                    share.into(),
                    (*slows).into(),
                    (*reason).into(),
                ]),
                _ => {}
            }
        }
    }

    pub(super) fn readings(&self, host: &str, table: &mut Table) {
        let Some(at) = self.host.at else { return };
        let metrics = self.metrics();
        for name in counters() {
            // Samples of `--gpu-metrics` are thousands a second, and have tables of their own.
            let is_sample =
                |time_ns: u64| metrics.is_some_and(|metrics| metrics.tells(name, time_ns));
            let all = self.series(name).into_iter().flatten();
            for (time_ns, value) in all.filter(|(at, value)| !value.is_nan() && !is_sample(**at)) {
                table.row(vec![
                    at.clock.since_start(*time_ns).into(),
                    host.into(),
                    self.index().into(),
                    (*value).into(),
                    name.into(),
                ]);
            }
        }
    }
}

pub(super) fn devices_table(why: &str) -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::data("uuid", Unit::Text),
        Column::data("pci", Unit::Text),
        Column::data("driver", Unit::Text),
        Column::data("readings", Unit::Count),
        Column::new("mean_utilization", "busy", Unit::Share),
        Column::data("highest_utilization", Unit::Share),
        Column::data("mean_memory_utilization", Unit::Share),
        Column::new("peak_memory_bytes", "memory", Unit::Bytes),
        Column::data("memory_bytes", Unit::Bytes),
        Column::new("mean_sm_clock_mhz", "MHz", Unit::Number),
        Column::data("lowest_sm_clock_mhz", Unit::Number),
        Column::data("highest_sm_clock_mhz", Unit::Number),
        Column::data("limit_sm_clock_mhz", Unit::Number),
        Column::data("mean_memory_clock_mhz", Unit::Number),
        Column::new("mean_power_watts", "W", Unit::Number),
        Column::data("highest_power_watts", Unit::Number),
        Column::data("limit_power_watts", Unit::Number),
        Column::new("highest_temperature_celsius", "max C", Unit::Number),
        Column::new("throttled", "throttled", Unit::Share),
        Column::data("visible_to", Unit::Text),
        Column::new("name", "name", Unit::Name),
    ];
    Table::new("gpus", "GPUs, sampled from outside the job", columns)
        .about(
            "busy: share of time with any kernel of any process, by the driver; memory: most in \
             use; throttled: clocks held down by power or heat",
        )
        .empty(why)
}

pub(super) fn throttling_table(why: &str) -> Table {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("share", "time", Unit::Share),
        Column::new("slows", "slows work", Unit::Flag),
        Column::new("reason", "reason", Unit::Name),
    ];
    Table::new("throttling", "Reasons for low clocks", columns)
        .about("several reasons may hold at once")
        .empty(why)
}

pub(super) fn readings_table(why: &str) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Time),
        Column::new("host", "host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("value", "value", Unit::Number),
        Column::new("counter", "counter", Unit::Name),
    ];
    Table::new("readings", "Readings", columns).view(View::Data).empty(why)
}
