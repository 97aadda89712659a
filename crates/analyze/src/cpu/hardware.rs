//! Cycles, instructions and cache misses: what a run has instead, which so far is
//! the reason why they are missing.

use tprof_trace::TraceFile;
use tprof_trace::model::property::NO_HARDWARE_COUNTS;

use crate::document::{Cell, Column, RankAt, Table, Unit, View};

/// Of a file that nobody asked for counts while it was recorded.
const NOT_ASKED: &str = "the file does not tell: it was imported, or an older tprof recorded it";

/// Why a file has no counts.
pub(super) fn why_missing(file: &TraceFile) -> String {
    let told = file.property(NO_HARDWARE_COUNTS);
    told.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_else(|| NOT_ASKED.to_owned())
}

/// The counts of each rank, for JSON and CSV.
pub(super) fn table<'a>(ranks: impl Iterator<Item = (&'a RankAt, &'a str)>) -> Table {
    let columns = vec![
        Column::data("cycles", Unit::Count),
        Column::data("instructions", Unit::Count),
        Column::data("instructions_per_cycle", Unit::Number),
        Column::data("cache_references", Unit::Count),
        Column::data("cache_misses", Unit::Count),
        Column::data("cache_hit_share", Unit::Share),
        Column::data("rank", Unit::Id),
        Column::data("label", Unit::Name),
    ];
    let counts = columns.len() - 2;
    let mut table = Table::new("hardware_counters", "Hardware counters", columns).view(View::Data);
    for (at, why) in ranks {
        let mut cells = vec![Cell::missing(why); counts];
        cells.extend([Cell::applies(at.rank), at.label.as_str().into()]);
        table.row(cells);
    }
    table
}

/// The reason for people; ranks mostly share one.
pub(super) fn note<'a>(reasons: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut reasons: Vec<&str> = reasons.collect();
    reasons.sort_unstable();
    reasons.dedup();
    (!reasons.is_empty())
        .then(|| format!("no cycles, instructions and cache misses: {}", reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use tprof_trace::model::Property;

    #[test]
    fn a_file_tells_why_it_has_no_counts() {
        assert_eq!(why_missing(&Fixture::new().finish()), NOT_ASKED);
        let mut made = Fixture::new();
        let (key, value) = (made.name(NO_HARDWARE_COUNTS), made.name("\"no such thing\""));
        made.writer.property(Property { key, value });
        assert_eq!(why_missing(&made.finish()), "no such thing");
    }

    #[test]
    fn each_reason_is_told_once() {
        let told = note(["b", "a", "b"].into_iter()).unwrap();
        assert_eq!(told, "no cycles, instructions and cache misses: a; b");
        assert_eq!(note([].into_iter()), None);
    }
}
