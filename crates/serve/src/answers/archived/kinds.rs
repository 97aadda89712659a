//! Kinds of report for which an archive has tables, and their statements.
//!
//! The rows of each table have the keys of the same table of `tprof report KIND --json`, or fewer.

/// A kind of report.
pub struct ArchivedKind {
    /// Name as in `tprof report`; `rank-files` is not a kind of report.
    pub name: &'static str,
    /// Description of what the report shows.
    pub about: &'static str,
    /// Its tables, which are not all of the report's tables.
    pub tables: &'static [Table],
}

/// A table of a document.
pub struct Table {
    /// Key in the document.
    pub key: &'static str,
    /// Table of the archive.
    pub source: &'static str,
    /// Names what the rows describe, in a sentence such as "the run has no …".
    pub of: &'static str,
    /// Columns that are selected.
    select: &'static str,
    /// Grouping and order.
    rest: &'static str,
    /// Largest number of rows.
    pub limit: u64,
}

/// Expression for a rank's label, as in reports.
const RANK: &str = "CASE WHEN number IS NULL THEN concat('no rank', coalesce(concat(', ', host), '')) \
                    WHEN instance > 0 THEN concat('rank ', number, '.', instance) \
                    ELSE concat('rank ', number) END AS rank";
/// Columns of a table of ranks after the rank.
const REST: &str = "host, * EXCLUDE (run, number, instance, host)";
/// Order by rank, with rows without a rank last.
const BY_RANK: &str = "ORDER BY number NULLS LAST, instance, host";
/// Limit of rows for tables that can have millions.
const MANY: u64 = 5_000;
/// Limit of rows for other tables: 1,024 ranks and more.
const ALL: u64 = 100_000;

const fn ranks(key: &'static str, source: &'static str, of: &'static str) -> Table {
    Table { key, source, of, select: "{rank}, {rest}", rest: "{by_rank}", limit: ALL }
}

const fn of(name: &'static str, about: &'static str, tables: &'static [Table]) -> ArchivedKind {
    ArchivedKind { name, about, tables }
}

/// All archived kinds of report.
pub const KINDS: &[ArchivedKind] = &[
    of(
        "findings",
        "what to fix, the largest gain first",
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
        "rank-files",
        "where and when each rank ran, and whether its file was whole",
        &[Table {
            key: "ranks",
            source: "ranks",
            of: "ranks",
            // The file's own label. What is counted there is notes of losses, each of which can
            // stand for many.
            select: "label AS rank, host, file, world_size, restarts, start_unix_ns, first_ns, last_ns, \
                     whole, recorded, lost AS loss_notes, bytes",
            rest: "{by_rank}",
            limit: ALL,
        }],
    ),
    of(
        "steps",
        "how long steps took, and where their device time went",
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
    of(
        "breakdown",
        "how the time of each GPU divides",
        &[ranks("breakdown", "rank_summary", "device time")],
    ),
    of(
        "idle",
        "how long streams were idle, and why",
        &[ranks("idle", "rank_idle", "record of streams")],
    ),
    of(
        "overlap",
        "communication hidden by compute",
        &[ranks("overlap", "rank_overlap", "communication")],
    ),
    of(
        "kernels",
        "kernels and copies by name",
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
    of(
        "launches",
        "calls that start work on devices, by function",
        &[ranks("launches", "rank_launches", "launches")],
    ),
    of(
        "device-memory",
        "device memory of each rank by allocator",
        &[ranks("pools", "rank_memory", "record of device memory")],
    ),
    of(
        "comm",
        "collectives by operation and size",
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
        "how late each rank came to collectives",
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
    /// Returns the statement for its rows, for one rank or for all.
    pub fn statement(&self, rank: Option<u32>) -> String {
        let Table { source, select, rest, .. } = self;
        let rest = rest.replace("{by_rank}", BY_RANK);
        let select = select.replace("{rank}", RANK).replace("{rest}", REST);
        let limit = self.limit;
        if !self.is_of_ranks() {
            return format!("SELECT {select} FROM {source} {rest} LIMIT {limit}");
        }
        let only = rank.map_or(String::new(), |rank| format!(" WHERE rank = {rank}"));
        // The result has a column `rank` of its own, which is text.
        let rows = format!("SELECT rank AS number, * EXCLUDE (rank) FROM {source}{only}");
        format!("SELECT {select} FROM ({rows}) {rest} LIMIT {limit}")
    }

    fn is_of_ranks(&self) -> bool {
        self.source != "findings"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_is_whole() {
        for table in KINDS.iter().flat_map(|kind| kind.tables) {
            let statement = table.statement(Some(3));
            assert!(!statement.contains(['{', '}']), "{statement}");
            assert_eq!(statement.contains(" WHERE rank = 3"), table.source != "findings");
        }
    }
}
