//! Finds the energy that devices took: by their own counters, or else by readings of their power.

use tprof_trace::model::HistoryRow;

/// What energies come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnergySources {
    /// Counters of energy, which devices keep themselves.
    pub counter: bool,
    /// Mean readings of the power, by time.
    pub power: bool,
}

impl EnergySources {
    /// Returns the sources of both.
    pub fn and(self, other: EnergySources) -> EnergySources {
        EnergySources { counter: self.counter || other.counter, power: self.power || other.power }
    }

    /// Returns the sources in words; `None` if there is none.
    pub fn words(self) -> Option<&'static str> {
        match (self.counter, self.power) {
            (true, false) => Some("counter"),
            (false, true) => Some("power"),
            (true, true) => Some("counter and power"),
            (false, false) => None,
        }
    }
}

/// Energy that devices took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// The energy in joules.
    pub joules: f64,
    /// What it comes from.
    pub sources: EnergySources,
}

impl Energy {
    /// Returns the energy that a counter says.
    pub fn counted(joules: f64) -> Energy {
        Energy { joules, sources: EnergySources { counter: true, power: false } }
    }

    /// Returns the energy of a mean power over a time.
    pub fn of_power(watts: f64, time_ns: u64) -> Energy {
        let joules = watts * time_ns as f64 / 1e9;
        Energy { joules, sources: EnergySources { counter: false, power: true } }
    }

    /// Returns what the devices of a row took between its beginning and its end; `None` if it isn't
    /// known.
    pub fn of(row: &HistoryRow) -> Option<Energy> {
        let counted = row.energy_millijoules.map(|mj| Energy::counted(mj as f64 / 1e3));
        let watts = row.power_milliwatts.map(|mw| mw as f64 / 1e3);
        counted.or_else(|| Some(Energy::of_power(watts?, row.duration_ns)))
    }

    /// Returns the sum.
    pub fn plus(self, other: Energy) -> Energy {
        Energy { joules: self.joules + other.joules, sources: self.sources.and(other.sources) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_comes_before_the_power() {
        let row = |energy_millijoules, power_milliwatts| {
            let duration_ns = 2_000_000_000;
            let row = HistoryRow {
                duration_ns,
                energy_millijoules,
                power_milliwatts,
                ..HistoryRow::default()
            };
            Energy::of(&row).map(|energy| (energy.joules, energy.sources.words().unwrap()))
        };
        assert_eq!(row(Some(1500), Some(300_000)), Some((1.5, "counter")));
        assert_eq!(row(None, Some(300_000)), Some((600.0, "power")));
        assert_eq!(row(None, None), None);
        let both = Energy::counted(1.0).plus(Energy::of_power(2.0, 1_000_000_000));
        assert_eq!((both.joules, both.sources.words()), (3.0, Some("counter and power")));
        assert_eq!(EnergySources::default().words(), None);
    }
}
