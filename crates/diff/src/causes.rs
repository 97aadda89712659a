//! Collects the causes of a rank's time: the time of its driving thread, divided as in `report
//! host`.

use tprof_facts::labels::base_name;
use tprof_metrics::host::{Ledger, Place, RankHost, WallTime};
use tprof_rank::samples::Part;

use super::amount::{Amount, HostNameKind, Z};

/// Key of start-up. It isn't a [`Part`], but is listed beside the parts.
pub(super) const START_UP: &str = "start_up";
/// The displayed name of start-up.
pub(super) const START_UP_NAME: &str = "start-up";
/// Whether a part of a rank's time is spent in its steps. Start-up happens once, before them.
pub(super) fn is_of_steps(part: &str) -> bool {
    part != START_UP
}

/// The kind of a sum, its displayed name, and the key that distinguishes equal names.
pub(super) type AmountName = (HostNameKind, String, String);

/// Returns the amounts of a rank by cause: by part, by function, and by line. Its start-up is apart.
pub(super) fn amounts(host: &RankHost, start_up: &Ledger) -> Vec<(AmountName, Amount)> {
    let ledger = &host.ledger;
    let mut all: Vec<(AmountName, Amount)> = Vec::new();
    for (part, time) in &ledger.parts {
        let name = (HostNameKind::Part, part.word().to_owned(), part.key().to_owned());
        let mut amount = amount(ledger, time);
        amount.variance += host.variance_by_step(*part);
        all.push((name, amount));
    }
    if start_up.wall_ns > 0 {
        let name = (HostNameKind::Part, START_UP_NAME.to_owned(), START_UP.to_owned());
        let value = start_up.wall_ns as f64;
        all.push((name, Amount { value, ..Amount::default() }));
    }
    for (place, time) in &ledger.places {
        if place.part == Part::Unknown || place.function.is_empty() {
            continue;
        }
        let (part, amount) = (place.part.key().to_owned(), amount(ledger, time));
        all.push(((HostNameKind::Cause, function(place), part.clone()), amount));
        all.push(((HostNameKind::CauseLine, place.shown(), part), amount));
    }
    all
}

fn amount(ledger: &Ledger, time: &WallTime) -> Amount {
    let deviation = ledger.error_ns(time) as f64 / Z;
    let count = time.samples as f64;
    Amount { value: time.ns as f64, variance: deviation.powi(2), count, ..Amount::default() }
}

/// Returns `function (file.py)`. The line is left out, because any edit of the file above it
/// changes its number.
fn function(place: &Place) -> String {
    match place.file.is_empty() {
        true => place.function.clone(),
        false => format!("{} ({})", place.function, base_name(&place.file)),
    }
}
