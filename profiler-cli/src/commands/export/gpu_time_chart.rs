//! Chart of GPU time: one bar per device, first its work, then its idle time by cause.

use std::collections::BTreeMap;

use tprof_document::{Table, Value};
use tprof_export::report_page::Chart;

/// Values of `part` and of `cause`, with the colour and the name of each, in the order in which
/// bars show them.
const PARTS: [(&str, &str, &str); 19] = [
    ("compute", "part0", "compute"),
    ("communication", "of-collective", "communication"),
    ("copies", "of-file_io", "copies"),
    ("launch", "of-no_core", "idle: launches"),
    ("sync", "of-device", "idle: waits for the device"),
    ("allocation", "of-allocator", "idle: device memory"),
    ("pageable_copy", "of-socket", "idle: pageable copies"),
    ("python", "of-python", "idle: other code"),
    ("data", "of-data", "idle: data"),
    ("gc", "of-gc", "idle: garbage collection"),
    ("lock", "of-lock", "idle: a lock"),
    ("gil", "of-gil", "idle: the GIL"),
    ("compile", "of-native", "idle: compilation"),
    ("checkpoint", "of-page_fault", "idle: checkpoint"),
    ("collective", "of-collective", "idle: other ranks"),
    ("stream", "of-other", "idle: held on the device"),
    ("start", "of-unknown", "idle: before the first work"),
    ("end", "of-unknown", "idle: after the last work"),
    ("unknown", "of-unknown", "idle: unknown"),
];

/// Draws the table `parts` of the report `gpu-time`, for at most `most` devices.
pub(super) fn chart(table: &Table, most: usize) -> Option<Chart> {
    let [rank, part, cause, share] = ["rank", "part", "cause", "share"].map(|key| table.place(key));
    let (rank, part, cause, share) = (rank?, part?, cause?, share?);
    let device = table.place("device");
    let text = |row: &[tprof_document::Cell], at: usize| match row[at].value() {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let mut bars: Vec<(String, BTreeMap<String, f64>)> = Vec::new();
    for row in &table.rows {
        let number = |at: usize| row[at].value().and_then(Value::number);
        let label = match device.and_then(number) {
            Some(device) => format!("{}, GPU {device}", text(row, rank)),
            None => text(row, rank),
        };
        let key = match text(row, cause) {
            none if none.is_empty() => text(row, part),
            cause => cause,
        };
        if bars.last().is_none_or(|(last, _)| *last != label) {
            bars.push((label, BTreeMap::new()));
        }
        let Some((_, shares)) = bars.last_mut() else { continue };
        *shares.entry(key).or_default() += number(share).unwrap_or(0.0);
    }
    let all = bars.len();
    bars.truncate(most);
    let used: Vec<_> = (PARTS.iter())
        .filter(|(key, ..)| {
            bars.iter().any(|(_, shares)| shares.get(*key).is_some_and(|of| *of > 0.0))
        })
        .collect();
    if used.is_empty() {
        return None;
    }
    let of_bar = |(label, shares): (String, BTreeMap<String, f64>)| {
        let shares =
            used.iter().map(|(key, ..)| shares.get(*key).copied().unwrap_or(0.0)).collect();
        (label, shares)
    };
    let rows = bars.into_iter().map(of_bar).collect();
    let parts = used.iter().map(|(_, class, name)| ((*class).to_owned(), (*name).to_owned()));
    let title = match all > most {
        true => format!("GPU time, the first {most} of {all} devices"),
        false => "GPU time: work, and what the device waited for".to_owned(),
    };
    Some(Chart::Stacks { title, parts: parts.collect(), rows })
}
