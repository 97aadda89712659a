//! Records counters, gauges and histograms of the crate `metrics`. Needs the feature `metrics`.

#![allow(unsafe_code)]

use crate::name::Name;
use crate::table::table;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A recorder for the crate `metrics`: see [`recorder`].
#[derive(Clone, Copy, Debug)]
pub struct Recorder {
    _private: (),
}

/// Returns a recorder that turns counters and gauges of the crate `metrics` into those of tprof.
/// Each value of a histogram becomes a value of a gauge. Labels become part of the name:
/// `requests{path="/"}`.
///
/// ```
/// let _ = metrics::set_global_recorder(tprof::recorder());
/// metrics::counter!("requests", "path" => "/").increment(1);
/// ```
pub fn recorder() -> Recorder {
    Recorder { _private: () }
}

/// A metric: its name, and the text that the name points to.
struct Metric {
    name: Name,
    /// Value of a gauge as an `f64`'s bits; for a counter, its last absolute value.
    value: AtomicU64,
    /// The text of the name, which is not moved or freed while the name points to it.
    _text: Box<str>,
}

impl Metric {
    fn of(key: &Key) -> Arc<Metric> {
        let mut text = key.name().to_owned();
        let mut before = '{';
        for label in key.labels() {
            text.push(before);
            text.push_str(label.key());
            text.push('=');
            text.push_str(&format!("{:?}", label.value()));
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        let text = text.into_boxed_str();
        Arc::new(Metric { name: Name::for_a_call(&text), value: AtomicU64::new(0), _text: text })
    }

    fn set(&self, value: f64) {
        if let Some(table) = table() {
            // SAFETY: `self` holds the name and its text, so both outlive the call.
            unsafe { (table.counter)(&self.name, value) };
        }
    }

    fn add(&self, amount: u64) {
        if let Some(table) = table() {
            // SAFETY: `self` holds the name and its text, so both outlive the call.
            unsafe { (table.add)(&self.name, amount as f64) };
        }
    }

    fn change(&self, by: impl Fn(f64) -> f64) {
        let change = |bits| Some(by(f64::from_bits(bits)).to_bits());
        let before = self.value.fetch_update(Relaxed, Relaxed, change);
        self.set(by(f64::from_bits(before.unwrap_or_default())));
    }
}

impl CounterFn for Metric {
    fn increment(&self, amount: u64) {
        self.add(amount);
    }

    fn absolute(&self, value: u64) {
        let before = self.value.fetch_max(value, Relaxed);
        if value > before {
            self.add(value - before);
        }
    }
}

impl GaugeFn for Metric {
    fn increment(&self, by: f64) {
        self.change(|value| value + by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| value - by);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        Metric::set(self, value);
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Metric::of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Metric::of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Metric::of(key))
    }
}
