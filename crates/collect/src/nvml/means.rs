//! Reads what the units of a device did on average (GPM), and the energy that it took. A device
//! counts both by itself, so nothing that happens between two readings is missed. They are read
//! more often than the rest, because steps are short.

use super::Values;
use super::library::{Device, GpmMetrics, GpmSample, Library};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use tprof_os::sys;
use tprof_trace::model::counter;

/// Least time between two samples. NVIDIA says of Hopper that means over less time are invalid.
const LEAST: Duration = Duration::from_millis(100);
/// Most readings for each reading of the rest.
const MOST: u128 = 5;

/// Returns the time between two readings, if everything else is read once per `all`: a whole number
/// of times as often.
pub(super) fn every(all: Duration) -> Duration {
    all / (all.as_millis() / LEAST.as_millis()).clamp(1, MOST) as u32
}

/// The two last samples of a device.
struct Samples {
    /// Time of the earlier one, ns; `None` if it wasn't taken.
    taken_ns: Option<u64>,
    earlier: GpmSample,
    later: GpmSample,
}

/// The means and the energy of a device.
pub(super) struct DeviceMeans {
    samples: Result<Samples, String>,
    missing: BTreeMap<&'static str, String>,
}

impl DeviceMeans {
    /// Finds out whether a device can tell its means.
    pub(super) fn of(library: &Library, device: Device) -> DeviceMeans {
        let samples = || {
            library.gpm_support(device)?;
            let (earlier, later) = (library.gpm_sample()?, library.gpm_sample()?);
            Ok(Samples { taken_ns: None, earlier, later })
        };
        DeviceMeans { samples: samples(), missing: BTreeMap::new() }
    }

    /// Returns why the device can't tell any mean; `None` if it can.
    pub(super) fn none(&self) -> Option<&str> {
        self.samples.as_ref().err().map(String::as_str)
    }

    /// Returns the quantities that the last reading lacks, with the reasons.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&&'static str, &String)> {
        self.missing.iter()
    }

    /// Reads the means since the last reading, and the energy. Passes each with its time to `send`.
    /// Returns whether other quantities are missing than before.
    pub(super) fn read(
        &mut self,
        library: &Library,
        device: Device,
        send: &mut dyn FnMut(u64, Values),
    ) -> bool {
        let mut missing = BTreeMap::new();
        let now_ns = sys::monotonic_ns();
        match library.energy(device) {
            Ok(mj) => send(now_ns, vec![(counter::GPU_ENERGY, mj as f64 / 1e3)]),
            Err(why) => drop(missing.insert(counter::GPU_ENERGY, why)),
        }
        // Why a device has no means at all is told once, and not for each of them.
        let means = match &mut self.samples {
            Ok(samples) => samples.read(library, device),
            Err(_) => Ok(None),
        };
        match means {
            Ok(Some((since_ns, means))) => {
                let mut values = Vec::new();
                for (name, value) in means {
                    match value {
                        Ok(value) => values.push((name, value)),
                        Err(why) => drop(missing.insert(name, why)),
                    }
                }
                if !values.is_empty() {
                    send(since_ns, values);
                }
            }
            // Two samples are needed. What was missing before stays so until then.
            Ok(None) => {
                let before = mem::take(&mut self.missing);
                let of_means = before.into_iter().filter(|(name, _)| *name != counter::GPU_ENERGY);
                missing.extend(of_means);
            }
            Err(why) => missing.extend(counter::GPU_MEANS.map(|name| (name, why.clone()))),
        }
        let is_new = self.missing != missing;
        self.missing = missing;
        is_new
    }
}

impl Samples {
    /// Takes a sample. Returns the means since the one before it, and its time.
    fn read(
        &mut self,
        library: &Library,
        device: Device,
    ) -> Result<Option<(u64, GpmMetrics)>, String> {
        let now_ns = sys::monotonic_ns();
        let since_ns = self.taken_ns.take();
        library.gpm_read(device, &mut self.later)?;
        self.taken_ns = Some(now_ns);
        mem::swap(&mut self.earlier, &mut self.later);
        // The samples have changed places.
        let means = since_ns.map(|since_ns| {
            Ok::<_, String>((since_ns, library.gpm_metrics(&self.later, &self.earlier)?))
        });
        means.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_read_more_often_but_not_more_than_ten_times_a_second() {
        let ms = |all: u64| every(Duration::from_millis(all)).as_millis();
        assert_eq!([ms(100), ms(150), ms(250), ms(500)], [100, 150, 125, 100]);
        assert_eq!([ms(1000), ms(60_000)], [200, 12_000]);
    }
}
