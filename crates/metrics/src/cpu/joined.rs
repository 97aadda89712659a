//! Joins the ranks for `report cpu`: makes its notes, and its tables in reading order.

use tprof_document::{Body, LineTables, Options, RankContext, Table};
use tprof_facts::units::{counted, duration, percent};
use tprof_rank::samples::NO_SAMPLES;

use super::counted_tables::{self, RequestedByRanks};
use super::rank_cpu::RankCpu;
use super::{line_tables, split_tables, tables};

/// The ranks of a run, added up.
pub(super) struct JoinedCpu {
    all: RankCpu,
    ranks: usize,
    /// Tables of events that were counted besides time, and notes on these events.
    counted: CountTables,
}

struct CountTables {
    of_places: Vec<Table>,
    of_ranks: Vec<Table>,
    notes: Vec<String>,
}

impl JoinedCpu {
    pub fn of(parts: Vec<(RankContext, RankCpu)>) -> JoinedCpu {
        let (ranks, counted) = (parts.len(), CountTables::of(&parts));
        let mut all = RankCpu::default();
        parts.into_iter().for_each(|(_, part)| all.add(part));
        JoinedCpu { all, ranks, counted }
    }

    /// Makes all tables of the report.
    pub fn body(mut self, options: &Options) -> Body {
        let (mut notes, why) = (self.notes(options), self.why_empty(options));
        let mut made = Vec::new();
        if options.lines != LineTables::No {
            made.extend(self.lines(options, why, &mut notes));
        }
        let all = &self.all;
        let has_waits = options.within_text().is_none();
        if options.lines == LineTables::Only {
            made.extend(has_waits.then(|| all.waits.table(all.rows)));
            return Body { tables: made, notes };
        }
        made.push(tables::functions(&all.functions, options, why));
        made.extend(tables::python(&all.functions, options));
        if options.data {
            made.extend(tables::python_modules(&all.functions));
        }
        made.push(tables::modules(&all.functions, why));
        made.extend(split_tables::tables(&all.split, options.data));
        if has_waits {
            made.push(all.waits.table(all.rows));
            made.extend(all.loading.table());
        }
        made.extend(self.counted.of_places);
        let [down, up] =
            ["Top down: callers above callees", "Bottom up: functions above their callers"];
        let running_ns = all.functions.running_ns;
        made.push(tables::tree("top_down", down, &all.top_down, running_ns, why));
        made.push(tables::tree("bottom_up", up, &all.bottom_up, running_ns, why));
        made.extend(self.counted.of_ranks);
        Body { tables: made, notes }
    }

    /// Makes the tables of lines. Adds notes on files whose source is not found and on lines that
    /// `--mine` leaves out.
    fn lines(&mut self, options: &Options, why: &str, notes: &mut Vec<String>) -> [Table; 2] {
        let RankCpu { lines, sources, functions, .. } = &mut self.all;
        let made = [
            line_tables::by_function(lines, options.sort, sources, why),
            line_tables::flat(lines, options.sort, sources, why),
        ];
        notes.extend(line_tables::without_source(lines, sources));
        let rest = functions.running_ns.saturating_sub(lines.listed_ns);
        if options.mine && rest > 0 {
            notes.push(format!(
                "only files outside of site-packages and the standard library; {} of CPU time has \
                 none of them on its stack",
                percent(rest as f64 / functions.running_ns.max(1) as f64)
            ));
        }
        made
    }

    fn notes(&mut self, options: &Options) -> Vec<String> {
        let mut notes = Vec::new();
        let (all, ranks) = (&self.all.functions, self.ranks);
        if let Some(text) = options.within_text() {
            notes.push(format!(
                "within {} NVTX ranges named like `{text}`, on their own threads; waits are not \
                 divided by range",
                self.all.ranges_within
            ));
        }
        if all.samples > 0 {
            let of_ranks = if ranks > 1 { format!(" of {ranks} files") } else { String::new() };
            let rest = match all.unknown_ns {
                0 => String::new(),
                ns => format!("; {} of it has no sample and is in no table", duration(ns)),
            };
            notes.push(format!(
                "{}{of_ranks} on a core, by {}{rest}; shares are of all of it",
                duration(all.running_ns),
                counted(all.samples, "sample", "samples")
            ));
        }
        notes.extend(self.unclear());
        if self.all.rows > 0 {
            notes.append(&mut self.counted.notes);
        }
        notes
    }

    /// Notes on CPU time that is known only in part.
    fn unclear(&self) -> Vec<String> {
        let all = &self.all.functions;
        let much = |ns: u64| {
            let share = ns as f64 / all.running_ns.max(1) as f64;
            (share >= 0.01).then(|| percent(share))
        };
        let unsampled = much(all.unknown_ns).map(|share| {
            format!(
                "{share} of CPU time has no sample (threads shorter than one period, or native \
                 code without perf events)"
            )
        });
        let nameless = all.all.iter().filter(|(func, _)| func.is_nameless_kernel());
        let nameless = much(nameless.map(|(_, sum)| sum.self_ns).sum()).map(|share| {
            format!(
                "{share} of CPU time is in kernel functions, shown as one: their names are {}",
                self.all.hidden.as_deref().unwrap_or("not read for a run of less than a second")
            )
        });
        let cut = much(all.cut_ns).map(|share| {
            format!(
                "{share} of CPU time has stacks that end early: totals of outer functions may \
                 lack it"
            )
        });
        [unsampled, nameless, cut].into_iter().flatten().collect()
    }

    fn why_empty(&self, options: &Options) -> &'static str {
        match options.within_text() {
            _ if self.all.rows == 0 => NO_SAMPLES,
            Some(_) if self.all.ranges_within == 0 => {
                "no NVTX range has such a name: `report nvtx` lists them"
            }
            Some(_) => "no sample lies within these ranges",
            None => "no running thread was sampled",
        }
    }
}

impl CountTables {
    fn of(parts: &[(RankContext, RankCpu)]) -> CountTables {
        let asked = parts.iter().map(|(_, part)| &part.counted.asked).collect();
        CountTables {
            of_places: counted_tables::of_places(parts.iter().map(|(_, part)| &part.counted)),
            of_ranks: counted_tables::of_ranks(parts.iter().map(|(at, part)| (at, &part.counted))),
            notes: RequestedByRanks(asked).notes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tprof_document::Cell;
    use tprof_rank::samples::{Func, Layer};

    use super::*;

    #[test]
    fn unsampled_time_is_noted_and_all_tables_divide_by_the_same_time() {
        let main =
            Func { name: "main".into(), file: "".into(), module: "m".into(), layer: Layer::Native };
        let mut all = RankCpu { rows: 3, ..RankCpu::default() };
        (all.functions.running_ns, all.functions.unknown_ns) = (200, 50);
        all.functions.samples = 2;
        let sum = all.functions.all.entry(main.clone()).or_default();
        (sum.self_ns, sum.total_ns, sum.self_samples, sum.total_samples) = (150, 150, 2, 2);
        all.top_down.add(std::iter::once(&main), 150);
        all.bottom_up.add(std::iter::once(&main), 150);
        let counted =
            CountTables { of_places: Vec::new(), of_ranks: Vec::new(), notes: Vec::new() };
        let body = JoinedCpu { all, ranks: 1, counted }.body(&Options::default());
        let note = "200 ns on a core, by 2 samples; 50 ns of it has no sample and is in no table; \
                    shares are of all of it";
        assert_eq!(body.notes[0], note);
        for (table, column) in
            [("functions", "self_share"), ("top_down", "share"), ("bottom_up", "share")]
        {
            let table = body.tables.iter().find(|one| one.key == table).unwrap();
            let at = table.columns.iter().position(|one| one.key == column).unwrap();
            assert_eq!(table.rows[0][at], Cell::from(0.75), "{}", table.key);
        }
    }
}
