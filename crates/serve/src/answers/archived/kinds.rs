//! The kinds of report for which an archive has tables, and the SQL statements that read the
//! tables.
//!
//! A row has the same keys as a row of that table in `tprof report KIND --json`, or fewer. Titles and
//! headings are those of the report.

use serde_json::{Map, Value};

use crate::app::Catalogue;

/// A kind of report.
pub struct ArchivedKind {
    /// Name as in `tprof report`, or [`RANK_FILES`].
    pub name: &'static str,
    /// Those tables of the report that an archive has.
    pub tables: &'static [Table],
}

/// A table of a report, and how it is read from the archive.
pub struct Table {
    /// Key of the table in the report.
    pub key: &'static str,
    /// Name of the table in the archive.
    pub source: &'static str,
    /// Plural noun for the rows, for a sentence such as "the run has no …".
    pub of: &'static str,
    /// SQL text of the selected columns, in which `{rank}` stands for [`RANK`] and `{rest}` for
    /// [`REST`].
    select: &'static str,
    /// SQL text of the grouping and the order, in which `{by_rank}` stands for [`BY_RANK`].
    rest: &'static str,
    /// Largest number of rows.
    pub limit: u64,
}

/// SQL expression for a rank's label: `rank 3`, or `rank 3.1` for the file `rank-3.1.tprof`.
/// Reports call the latter `rank 3, restart 1` or `rank 3, launch 2`. An archive can tell a restart
/// from a second launch only by its table `ranks`, which it may lack.
pub(super) const RANK: &str = "CASE WHEN number IS NULL THEN concat('no rank', coalesce(concat(', ', host), '')) \
                    WHEN instance > 0 THEN concat('rank ', number, '.', instance) \
                    ELSE concat('rank ', number) END AS rank";
/// SQL text of the columns that follow the rank in a table of ranks.
const REST: &str = "host, * EXCLUDE (run, number, instance, host)";
/// SQL text that orders rows by rank, with rows without a rank last.
pub(super) const BY_RANK: &str = "ORDER BY number NULLS LAST, instance, host";
/// Largest number of rows of a table that can have millions.
const MANY: u64 = 5_000;
/// Largest number of rows of other tables, which have a row for each of 1,024 ranks or more.
const ALL: u64 = 100_000;

/// Describes a table of which all columns are read, with the rank first.
const fn ranks(key: &'static str, source: &'static str, of: &'static str) -> Table {
    Table { key, source, of, select: "{rank}, {rest}", rest: "{by_rank}", limit: ALL }
}

const fn of(name: &'static str, tables: &'static [Table]) -> ArchivedKind {
    ArchivedKind { name, tables }
}

/// Name of the only kind that `tprof report` does not have.
pub const RANK_FILES: &str = "rank-files";
/// Description of [`RANK_FILES`].
const OF_RANK_FILES: &str = "where and when each rank ran, and whether its file was whole";

impl ArchivedKind {
    /// Returns the description of the report.
    pub fn about<'c>(&self, catalogue: &'c Catalogue) -> &'c str {
        let known = catalogue.kinds.iter().find(|kind| kind.name == self.name);
        known.map_or(OF_RANK_FILES, |kind| &kind.about)
    }

    /// Returns the titles and headings of the report's tables, as `tprof report` prints them.
    pub fn shown(&self, catalogue: &Catalogue) -> Map<String, Value> {
        let known = catalogue.kinds.iter().find(|kind| kind.name == self.name);
        let of = |table: &Table| Some((table.key.to_owned(), known?.shown.get(table.key)?.clone()));
        self.tables.iter().filter_map(of).collect()
    }
}

/// All archived kinds of report.
pub const KINDS: &[ArchivedKind] = &[
    of(
        "findings",
        &[Table {
            key: "findings",
            source: "findings",
            of: "finding: no rule found anything, or none could be checked",
            select: "* EXCLUDE (run)",
            rest: "ORDER BY finding",
            limit: ALL,
        }],
    ),
    of(
        RANK_FILES,
        &[Table {
            key: "ranks",
            source: "ranks",
            of: "ranks",
            // `label` is the file's own label. `lost` counts notes of losses, each of which can
            // stand for many lost events.
            select: "label AS rank, host, file, world_size, restarts, start_unix_ns, first_ns, last_ns, \
                     whole, recorded, lost AS loss_notes, bytes",
            rest: "{by_rank}",
            limit: ALL,
        }],
    ),
    of(
        "steps",
        &[
            Table {
                key: "step_times",
                source: "rank_steps",
                of: "steps",
                select: "{rank}, host, count(*) AS steps, median(CAST(duration_ns AS DOUBLE)) AS median_ns, \
                         avg(duration_ns) AS mean_ns, stddev(duration_ns) AS deviation_ns, \
                         min(duration_ns) AS min_ns, max(duration_ns) AS max_ns",
                rest: "GROUP BY number, instance, host {by_rank}",
                limit: ALL,
            },
            Table {
                key: "device_time_of_a_step",
                source: "rank_step_devices",
                of: "device time of steps",
                select: "{rank}, host, count(*) AS steps, avg(compute_ns) AS compute_ns, \
                         avg(exposed_communication_ns) AS exposed_communication_ns, \
                         avg(exposed_copies_ns) AS exposed_copies_ns, avg(idle_ns) AS idle_ns, \
                         avg(gpu_busy) AS gpu_busy, avg(launches) AS launches, avg(mfu) AS mfu, avg(hfu) AS hfu",
                rest: "GROUP BY number, instance, host {by_rank}",
                limit: ALL,
            },
            Table {
                key: "steps",
                source: "rank_steps",
                of: "steps",
                select: "{rank}, {rest}",
                rest: "{by_rank}, step",
                limit: MANY,
            },
        ],
    ),
    of("breakdown", &[ranks("breakdown", "rank_summary", "device time")]),
    of("idle", &[ranks("idle", "rank_idle", "record of streams")]),
    of("overlap", &[ranks("overlap", "rank_overlap", "communication")]),
    of(
        "kernels",
        &[
            Table {
                key: "kernels",
                source: "rank_kernels",
                of: "kernels",
                select: "sum(total_ns) AS total_ns, \
                         CAST(sum(total_ns) AS DOUBLE) / NULLIF(sum(sum(total_ns)) OVER (), 0) AS share, \
                         sum(count) AS count, CAST(sum(total_ns) AS DOUBLE) / NULLIF(sum(count), 0) AS mean_ns, \
                         min(min_ns) AS min_ns, max(max_ns) AS max_ns, count(DISTINCT number) AS ranks, class, name",
                rest: "GROUP BY name, class ORDER BY total_ns DESC, name",
                limit: MANY,
            },
            Table {
                key: "by_rank",
                source: "rank_kernels",
                of: "kernels",
                select: "{rank}, {rest}",
                rest: "{by_rank}, total_ns DESC",
                limit: MANY,
            },
        ],
    ),
    of("launches", &[ranks("launches", "rank_launches", "launches")]),
    of("device-memory", &[ranks("pools", "rank_memory", "record of device memory")]),
    of(
        "comm",
        &[
            Table {
                key: "comm",
                source: "rank_collectives",
                of: "collectives",
                select: "sum(calls) AS calls, bytes, group_size, sum(total_ns) AS total_ns, \
                         CAST(sum(total_ns) AS DOUBLE) / NULLIF(sum(calls), 0) AS mean_ns, min(min_ns) AS min_ns, \
                         max(max_ns) AS max_ns, element_type, operation",
                rest: "GROUP BY operation, element_type, bytes, group_size ORDER BY total_ns DESC, bytes",
                limit: MANY,
            },
            Table {
                key: "comm_by_rank",
                source: "rank_collectives",
                of: "collectives",
                select: "{rank}, {rest}",
                rest: "{by_rank}, total_ns DESC",
                limit: MANY,
            },
        ],
    ),
    of(
        "stragglers",
        &[Table {
            key: "late_arrivals",
            source: "rank_arrivals",
            of: "collectives of several ranks",
            select: "{rank}, {rest}",
            rest: "ORDER BY mean_late_ns DESC NULLS LAST",
            limit: ALL,
        }],
    ),
];

impl Table {
    /// Returns the SQL statement that reads the table's rows, of one rank or of all.
    pub fn statement(&self, rank: Option<u32>) -> String {
        let Table { source, select, rest, .. } = self;
        let rest = rest.replace("{by_rank}", BY_RANK);
        let select = select.replace("{rank}", RANK).replace("{rest}", REST);
        let limit = self.limit;
        if !self.is_of_ranks() {
            return format!("SELECT {select} FROM {source} {rest} LIMIT {limit}");
        }
        let only = rank.map_or(String::new(), |rank| format!(" WHERE rank = {rank}"));
        // The column `rank` is renamed to `number`, because the result has a text column `rank`:
        // the label.
        let rows = format!("SELECT rank AS number, * EXCLUDE (rank) FROM {source}{only}");
        format!("SELECT {select} FROM ({rows}) {rest} LIMIT {limit}")
    }

    /// Whether the archive's table has a column `rank`.
    fn is_of_ranks(&self) -> bool {
        self.source != "findings"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_no_placeholders_and_select_the_rank() {
        for table in KINDS.iter().flat_map(|kind| kind.tables) {
            let statement = table.statement(Some(3));
            assert!(!statement.contains(['{', '}']), "{statement}");
            assert_eq!(statement.contains(" WHERE rank = 3"), table.source != "findings");
        }
    }
}
