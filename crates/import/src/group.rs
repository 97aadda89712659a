//! Builds communicators from process groups, which are the ranks that communicate with each other.

use crate::output::Output;
use crate::threads::MAIN;
use serde_json::Value;
use std::collections::BTreeMap;
use tprof_trace::hash::fnv1a;
use tprof_trace::model::Communicator;

/// A process group, as a collective names it.
#[derive(Debug)]
pub(crate) struct Group {
    pub name: String,
    pub description: String,
    /// Ranks as a text such as `[0, 1]`. PyTorch shortens long lists.
    pub ranks: String,
    pub size: Option<u32>,
}

/// Returns a number for a group. The number depends only on the name, which is the same on all
/// ranks.
pub(crate) fn group_number(name: &str) -> u64 {
    name.parse().unwrap_or_else(|_| fnv1a(name.as_bytes()))
}

/// Builds communicators from collectives and the top level's `distributedInfo`.
pub(crate) fn communicators(
    groups: BTreeMap<u64, Group>,
    info: &Value,
    rank: Option<u32>,
    output: &mut Output,
) -> Vec<Communicator> {
    let mut rows: BTreeMap<u64, Communicator> = BTreeMap::new();
    let text = |value: &Value, key: &str| match &value[key] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    for group in info["pg_config"].as_array().into_iter().flatten() {
        let name = text(group, "pg_name");
        let ranks = group["ranks"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let row = Communicator {
            process: MAIN,
            communicator: group_number(&name),
            description: output.plain_name(&text(group, "pg_desc")),
            backend: output.plain_name(&text(group, "backend_config")),
            size: group["pg_size"].as_u64().and_then(|size| u32::try_from(size).ok()),
            ranks: ranks.collect(),
            rank: None,
            name: output.plain_name(&name),
        };
        rows.insert(row.communicator, row);
    }
    for (number, group) in groups {
        rows.entry(number).or_insert_with(|| Communicator {
            process: MAIN,
            communicator: number,
            name: output.plain_name(&group.name),
            description: output.plain_name(&group.description),
            size: group.size,
            ranks: serde_json::from_str(&group.ranks).unwrap_or_default(),
            ..Communicator::default()
        });
    }
    // Old versions of PyTorch write only the number of ranks.
    if rows.is_empty()
        && let Some(size) = info["world_size"].as_u64()
    {
        let backend = output.plain_name(&text(info, "backend"));
        let size = u32::try_from(size).ok();
        rows.insert(0, Communicator { process: MAIN, backend, size, rank, ..Default::default() });
    }
    for row in rows.values_mut() {
        let place = |rank: u32| row.ranks.iter().position(|there| *there == u64::from(rank));
        row.rank = row.rank.or_else(|| rank.and_then(place).map(|place| place as u32));
    }
    rows.into_values().collect()
}
