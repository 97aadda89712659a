//! Writes the complete trees of the flame page as JSON. Unlike on the page, no frames are grouped.
//! docs/exports.md describes the format.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::profile::{Profile, rounded};
use super::tree::{FrameKind, FrameTable, ROOT};

/// Version of the document. It increases when a program that was written for the previous version
/// would misread the new one.
pub(crate) const VERSION: u32 = 1;

/// The first part of the document, which names the runs.
pub(crate) struct Head {
    /// Title of the run.
    pub run: String,
    /// Title of the baseline, if two runs are compared.
    pub before: Option<String>,
    /// Notes for people who read the document.
    pub notes: Vec<String>,
}

/// Writes the document.
pub(crate) fn write(
    head: &Head,
    profiles: &[Profile],
    table: &FrameTable,
    to: &mut impl Write,
) -> io::Result<()> {
    let Head { run, before, notes } = head;
    write!(to, "{{\"version\":{VERSION},\"run\":{},\"before\":{},", json!(run), json!(before))?;
    write!(to, "\"notes\":{},\n\"frames\":[", json!(notes))?;
    for at in 0..table.names.len() {
        let place = Some(&table.places[at]).filter(|place| !place.is_empty());
        let (name, kind) = (&table.names[at], name_of(table.kinds[at]));
        let frame = json!({ "name": name, "kind": kind, "place": place });
        write!(to, "{}\n{frame}", comma(at))?;
    }
    write!(to, "],\n\"profiles\":[")?;
    for (at, profile) in profiles.iter().enumerate() {
        writeln!(to, "{}", comma(at))?;
        profile_to(profile, before.is_some(), to)?;
    }
    writeln!(to, "]}}")
}

fn profile_to(profile: &Profile, compared: bool, to: &mut impl Write) -> io::Result<()> {
    let Profile { key, label, measures, empty, tree, estimate, .. } = profile;
    let sides = if compared { 2 } else { 1 };
    let total = |column: usize| (!profile.is_empty()).then(|| tree.total(column));
    let measures: Vec<Value> = (measures.iter().enumerate())
        .map(|(at, measure)| {
            json!({ "label": measure.label, "unit": measure.unit, "about": measure.about,
                    "total": total(at * sides),
                    "total_before": compared.then(|| total(at * sides + 1)) })
        })
        .collect();
    let empty = profile.is_empty().then_some(empty);
    let (key, label) = (json!(key), json!(label));
    write!(to, "{{\"key\":{key},\"label\":{label},\"estimate\":{estimate},")?;
    write!(to, "\"empty\":{},\"measures\":{},\"nodes\":[", json!(empty), json!(measures))?;
    // Values are rounded to whole numbers in such a way that their sum is within one of the exact
    // total, as on the page.
    let column =
        |column: usize| rounded((0..tree.len() as u32).map(|node| tree.value(node, column)));
    let side = |side: usize| -> Vec<Vec<u64>> {
        (0..measures.len()).map(|measure| column(measure * sides + side)).collect()
    };
    let (now, before) = (side(0), compared.then(|| side(1)));
    let of = |values: &[Vec<u64>], node: usize| -> Vec<u64> {
        values.iter().map(|column| column[node]).collect()
    };
    for node in 1..tree.len() {
        let parent = Some(tree.parents[node]).filter(|parent| *parent != ROOT);
        let mut row = json!({
            "parent": parent.map(|parent| parent - 1),
            "frame": tree.frames[node],
            "self": of(&now, node),
        });
        if let Some(before) = &before {
            row["self_before"] = json!(of(before, node));
        }
        write!(to, "{}\n{row}", comma(node - 1))?;
    }
    write!(to, "]}}")
}

fn comma(at: usize) -> &'static str {
    if at == 0 { "" } else { "," }
}

/// Returns the name of a frame's kind in JSON, which never changes.
fn name_of(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Rank => "rank",
        FrameKind::Process => "process",
        FrameKind::Thread => "thread",
        FrameKind::Native => "native",
        FrameKind::Python => "python",
        FrameKind::Operator => "operator",
        FrameKind::Range => "range",
        FrameKind::Call => "call",
        FrameKind::Kernel => "kernel",
        FrameKind::Collective => "collective",
        FrameKind::Copy => "copy",
        FrameKind::Unknown => "unknown",
        FrameKind::Group => "group",
        FrameKind::Overhead => "overhead",
    }
}
