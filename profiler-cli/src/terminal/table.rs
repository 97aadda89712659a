//! Lays rows out in columns, as wide as the terminal.

use std::collections::HashSet;

use tprof_facts::units::count;
use tprof_ui::columns::{left, right, shorten, width};

use super::distinct::{NameKind, shorten_all};
use super::markdown::ColumnForm;
use super::wrap::{words, wrap};

/// Width that the last column should have if it contains long names.
const NAME: usize = 32;
/// Smallest useful width of a name. If the last column is narrower, and some names need more, each
/// name has its own line.
const LEAST_NAME: usize = 20;
/// Indentation of a name that has its own line.
const INDENT: usize = 6;
/// Smallest width to which a column of words is narrowed, on a page that is not narrow.
const WORDS: usize = 12;
/// Smallest width to which a column of words is narrowed for a longer word, and on a narrow page,
/// where names have their own lines.
const MOST_WORD: usize = 20;
/// Smallest width in which the words of a heading go on below each other.
const LEAST_HEADING: usize = 4;
/// A page with fewer columns than this is narrow.
const NARROW: usize = 80;

/// How to see the rows that are left out: `tprof report`, `diff` and `ctl snapshot` have this option.
pub const MORE: &str = "--top N shows more";

/// Returns what follows the title of a table of which only the first rows are shown: `, 10 of 1,234
/// (--top N shows more)`. Empty if all rows are shown.
pub fn cut(shown: usize, all: usize) -> String {
    match shown < all {
        true => format!(", {} of {} ({MORE})", count(shown as u64), count(all as u64)),
        false => String::new(),
    }
}

/// Rows in columns. A name in the last column that doesn't fit into less than half of the page is put
/// into the next line. There, and in a wider column, it is cut at the page's edge. Words that don't
/// fit into their column go on below. A table that is too wide is split into two if its first column
/// tells the rows apart.
pub struct Table {
    left: Vec<bool>,
    /// Indexes of the columns with names from the traced program.
    names: Vec<usize>,
    /// What the names of the last column are.
    kind: NameKind,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings. All columns but the last are right-aligned.
    pub fn new(headings: &[&str]) -> Table {
        let last = headings.len().saturating_sub(1);
        let aligned: Vec<(&str, bool)> =
            headings.iter().enumerate().map(|(at, &text)| (text, at == last)).collect();
        Table::aligned(&aligned)
    }

    /// Creates a table with these headings. The flag says whether a column is left-aligned.
    pub fn aligned(headings: &[(&str, bool)]) -> Table {
        Table {
            left: headings.iter().map(|(_, left)| *left).collect(),
            names: Vec::new(),
            kind: NameKind::Any,
            rows: vec![headings.iter().map(|(text, _)| (*text).to_owned()).collect()],
        }
    }

    /// Marks the column with this index as one of names.
    pub fn names(mut self, column: usize) -> Table {
        self.names.push(column);
        self
    }

    /// Says that the names of the last column are functions.
    pub fn functions(mut self) -> Table {
        self.kind = NameKind::Functions;
        self
    }

    /// Returns what each column has.
    pub(super) fn forms(&self) -> Vec<ColumnForm> {
        let form = |(column, left): (usize, &bool)| match (self.names.contains(&column), left) {
            (true, _) => ColumnForm::Names,
            (_, true) => ColumnForm::Words,
            (_, false) => ColumnForm::Numbers,
        };
        self.left.iter().enumerate().map(form).collect()
    }

    /// Returns all rows, of which the first has the headings.
    pub(super) fn all(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Adds a row of cells.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Replaces the cells of the last column with the result of `make`, which gets the column's
    /// width.
    pub fn fill_last(&mut self, page: usize, make: impl FnOnce(usize) -> Vec<String>) {
        let (_, room) = self.widths(page);
        for (row, cell) in self.rows.iter_mut().skip(1).zip(make(room.max(LEAST_NAME))) {
            if let Some(last) = row.last_mut() {
                *last = cell;
            }
        }
    }

    /// Returns the widths of the columns, and the width that is left for the last one.
    fn widths(&self, page: usize) -> (Vec<usize>, usize) {
        // The heading of a last column that is cut at the page's edge takes no room from the others.
        let is_cut = |column: usize| column + 1 == self.left.len() && self.left[column];
        let wide = |column: usize| {
            let first = usize::from(is_cut(column) && self.rows.len() > 1);
            let cells = self.rows.iter().skip(first).filter_map(|row| row.get(column));
            cells.map(|cell| width(cell)).max().unwrap_or(0)
        };
        let widths = self.fitted((0..self.left.len()).map(wide).collect(), page);
        let taken: usize = widths.iter().rev().skip(1).map(|columns| columns + 2).sum();
        (widths, page.saturating_sub(taken + 2))
    }

    /// Returns the widths of the columns. Columns of words are narrowed if a last column of names
    /// needs more room; their words go on below.
    fn fitted(&self, mut widths: Vec<usize>, page: usize) -> Vec<usize> {
        let (Some(true), Some(wanted)) = (self.left.last(), widths.last().copied()) else {
            return widths;
        };
        let wanted = wanted.min(NAME);
        let last = widths.len() - 1;
        let natural: Vec<usize> = widths.iter().map(|width| (*width).min(page - INDENT)).collect();
        let least: Vec<usize> = (0..last).map(|at| self.least_words(at, page)).collect();
        loop {
            let taken: usize = widths[..last].iter().map(|width| width + 2).sum();
            if taken + 2 + wanted <= page {
                return widths;
            }
            let words = (0..last).filter(|&at| self.left[at] && widths[at] > least[at]);
            match words.max_by_key(|&at| widths[at]) {
                Some(widest) => widths[widest] -= 1,
                // The rows take several lines anyway, so no column needs to make room.
                None if taken > page => return natural,
                None => return widths,
            }
        }
    }

    /// Returns the smallest width to which a column of words is narrowed. Only words that are as
    /// long as names are cut.
    fn least_words(&self, column: usize, page: usize) -> usize {
        if page < NARROW {
            return MOST_WORD;
        }
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let longest = cells.flat_map(|cell| words(cell)).map(|word| width(&word)).max();
        longest.unwrap_or(0).clamp(WORDS, MOST_WORD)
    }

    /// Returns the number of spaces between columns. A table of numbers that is a little too wide for
    /// the page has one, because no digit may be cut.
    fn gap(&self, widths: &[usize], page: usize) -> usize {
        let taken: usize = widths.iter().map(|columns| columns + 2).sum();
        if self.left.last() == Some(&false) && taken > page { 1 } else { 2 }
    }

    /// Returns the cells of a last column of names, shortened so that different names stay
    /// different. Returns an empty list if the last column has no names.
    fn last_names(&self, columns: usize) -> Vec<String> {
        let Some(last) = self.left.len().checked_sub(1).filter(|at| self.names.contains(at)) else {
            return Vec::new();
        };
        let cells = self.rows.iter().map(|row| row.get(last).map_or("", |cell| cell.trim()));
        let mut names = shorten_all(&cells.collect::<Vec<_>>(), columns, self.kind);
        // The heading is not a name, and is cut later.
        if let (Some(first), Some(heading)) = (names.first_mut(), self.rows[0].get(last)) {
            first.clone_from(heading);
        }
        names
    }

    /// Returns the lines of the table for a page of `page` columns, indented by two.
    pub fn lines(&self, page: usize) -> Vec<String> {
        if let Some((first, rest)) = self.split(page) {
            let mut lines = first.lines(page);
            lines.push(String::new());
            lines.extend(rest.lines(page));
            return lines;
        }
        let columns = self.left.len();
        let (widths, room) = self.widths(page);
        let wanted = widths.last().copied().unwrap_or(0);
        let below = self.left.last() == Some(&true) && room < LEAST_NAME.min(wanted);
        let whole = self.last_names(page - INDENT);
        let last = if below { whole.clone() } else { self.last_names(room) };
        let gap = self.gap(&widths, page);
        let line = |(at, row): (usize, &Vec<String>)| {
            let mut lines = RowLines::default();
            // Whether the line continues a row. Its cells take no more room than they need.
            let mut continues = false;
            for (column, cell) in row.iter().enumerate() {
                let cell = last.get(at).filter(|_| column + 1 == columns).unwrap_or(cell);
                let room = widths.get(column).copied().unwrap_or(0);
                let is_left = self.left.get(column).copied().unwrap_or(false);
                let is_name = self.names.contains(&column);
                // Cells that don't fit into the line continue on the next one.
                let is_cut = column + 1 == columns && is_left;
                if column > 0 && !is_cut && width(&lines.line) + gap + room > page {
                    lines.next(INDENT - gap);
                    continues = true;
                }
                lines.line += &" ".repeat(if column == 0 { 2 } else { gap });
                let fits = width(&lines.line) + width(cell.trim()) <= page;
                let is_heading_here = at == 0 && fits;
                if continues && is_left && fits {
                    lines.line += cell.trim();
                } else if column + 1 == columns && below && !is_heading_here {
                    lines.next(INDENT);
                    lines.line += &shorten(cell.trim(), page - INDENT);
                } else if is_cut {
                    let room = page.saturating_sub(width(&lines.line));
                    if !is_name || at == 0 && room >= LEAST_HEADING {
                        lines.words(wrap(cell.trim(), room));
                        continue;
                    }
                    let short = shorten(cell.trim(), room);
                    // A name that would be cut here is put below, where there is more room.
                    let is_cut = at > 0 && short.contains('\u{2026}');
                    if let Some(name) = whole.get(at).filter(|_| is_cut && 2 * room < page) {
                        lines.next(INDENT);
                        lines.line += name;
                    } else {
                        lines.line += &short;
                    }
                } else if is_left && !is_name && width(cell) > room && !cell.starts_with(' ') {
                    let begins = width(&lines.line);
                    lines.words(wrap(cell, room));
                    let after = (begins + room).saturating_sub(width(&lines.line));
                    lines.line += &" ".repeat(after);
                } else if is_left {
                    lines.line += &left(&shorten(cell, room), room);
                } else {
                    lines.line += &right(cell, room);
                }
            }
            lines.finished()
        };
        self.rows.iter().enumerate().flat_map(line).collect()
    }

    /// Splits a table that is wider than the page into two, each of which begins with the first
    /// column. Returns `None` if the table fits or has a single row, or if the first column doesn't
    /// tell the rows apart.
    fn split(&self, page: usize) -> Option<(Table, Table)> {
        let (widths, _) = self.widths(page);
        let gap = self.gap(&widths, page);
        let all = self.left.len();
        // A last column that is cut at the page's edge has the room that the others leave.
        let numbers = all - usize::from(self.left.last() == Some(&true));
        let mut taken = 0;
        let fit = widths[..numbers].iter().enumerate().position(|(column, width)| {
            taken += width + if column == 0 { 2 } else { gap };
            taken > page
        })?;
        let mut different = HashSet::new();
        let is_different = |row: &Vec<String>| different.insert(row.first().cloned());
        if fit < 2 || self.rows.len() < 3 || !self.rows.iter().skip(1).all(is_different) {
            return None;
        }
        let rest: Vec<usize> = std::iter::once(0).chain(fit..all).collect();
        Some((self.part(&(0..fit).collect::<Vec<_>>()), self.part(&rest)))
    }

    /// Returns a table of some of the columns.
    fn part(&self, columns: &[usize]) -> Table {
        let is_name = |(_, column): &(usize, &usize)| self.names.contains(column);
        let cells = |row: &Vec<String>| {
            columns.iter().map(|at| row.get(*at).cloned().unwrap_or_default()).collect()
        };
        Table {
            left: columns.iter().map(|at| self.left[*at]).collect(),
            names: columns.iter().enumerate().filter(is_name).map(|(at, _)| at).collect(),
            kind: self.kind,
            rows: self.rows.iter().map(cells).collect(),
        }
    }
}

/// The lines of a row. Words that don't fit into their column go on in lines below.
#[derive(Default)]
struct RowLines {
    done: Vec<String>,
    /// The line that is being filled.
    line: String,
    /// Where words go on below the line, and what they are.
    below: Vec<(usize, Vec<String>)>,
}

impl RowLines {
    /// Adds the first of these texts to the line; the others go below it.
    fn words(&mut self, texts: Vec<String>) {
        let begins = width(&self.line);
        let mut texts = texts.into_iter();
        self.line += &texts.next().unwrap_or_default();
        let rest: Vec<String> = texts.collect();
        if !rest.is_empty() {
            self.below.push((begins, rest));
        }
    }

    /// Begins a line with this indentation.
    fn next(&mut self, indent: usize) {
        let line = std::mem::replace(&mut self.line, " ".repeat(indent));
        self.done.push(line.trim_end().to_owned());
        let below = std::mem::take(&mut self.below);
        let deepest = below.iter().map(|(_, texts)| texts.len()).max().unwrap_or(0);
        for at in 0..deepest {
            let mut line = String::new();
            for (begins, texts) in &below {
                if let Some(text) = texts.get(at) {
                    line += &" ".repeat(begins.saturating_sub(width(&line)));
                    line += text;
                }
            }
            self.done.push(line);
        }
    }

    fn finished(mut self) -> Vec<String> {
        self.next(0);
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = tprof_ui::columns::USUAL;

    #[test]
    fn a_last_column_of_words_goes_on_below_itself() {
        let mut table = Table::new(&["number", "what"]);
        table.row(vec!["1".into(), "words ".repeat(20)]);
        let lines = table.lines(40);
        assert_eq!(lines[0], "  number  what");
        assert_eq!(lines[1], "       1  words words words words words");
        assert_eq!(lines[2], "          words words words words words");
        assert_eq!(lines.len(), 5, "{lines:?}");
    }

    #[test]
    fn columns_of_words_make_room_for_names() {
        let mut table = Table::aligned(&[("total", false), ("module", true), ("function", true)]);
        let module = "_multiarray_umath.cpython-311-x86_64-linux-gnu.so with a tail";
        let function = "numpy.core._multiarray_umath.einsum_sum_of_products_two";
        table.row(vec!["1.0 ms".into(), module.into(), function.into()]);
        let lines = table.lines(WIDTH);
        assert!(lines[1].chars().count() <= WIDTH, "{lines:?}");
        assert!(lines[1].starts_with("  1.0 ms  _multiarray_umath"), "{lines:?}");
        assert!(lines[1].ends_with("_products_two"), "{lines:?}");
    }

    #[test]
    fn a_name_that_would_be_cut_is_put_below_its_row() {
        let name = "Waves.prepare.<locals>.<listcomp> (loader.py:30)";
        let columns = [("total", false), ("outside of steps", false), ("name", true)];
        let mut table = Table::aligned(&columns).names(2);
        for name in [name, "short"] {
            table.row(vec!["1.0 ms".into(), "2.0 ms".into(), name.into()]);
        }
        let lines = table.lines(55);
        assert_eq!(lines[1], "  1.0 ms            2.0 ms");
        assert_eq!(lines[2], format!("      {name}"));
        assert_eq!(lines[3], "  1.0 ms            2.0 ms  short");
        assert_eq!(lines.len(), 4, "{lines:?}");
    }

    #[test]
    fn words_that_make_room_for_names_go_on_below() {
        let mut table =
            Table::aligned(&[("state", true), ("total", false), ("line", true)]).names(2);
        let state = "waiting for a collective operation";
        let line = "train_one_epoch_of_the_model (train.py:120)";
        table.row(vec![state.into(), "1.0 ms".into(), line.into()]);
        table.row(vec!["runs".into(), "2.0 ms".into(), "short".into()]);
        let lines = table.lines(60);
        assert_eq!(lines[1], "  waiting for a         1.0 ms");
        assert_eq!(lines[2], "  collective operation");
        assert_eq!(lines[3], format!("      {line}"));
        assert_eq!(lines[4], "  runs                  2.0 ms  short");
        let lines = table.lines(WIDTH).join("\n");
        assert!(!lines.contains('\u{2026}'), "{lines}");
    }

    #[test]
    fn a_heading_over_names_goes_on_below_itself() {
        let mut table = Table::aligned(&[("number", false), ("steps from", true)]).names(1);
        table.row(vec!["1".into(), "loader".into()]);
        assert_eq!(table.lines(18), ["  number  steps", "          from", "       1  loader"]);
    }

    #[test]
    fn a_table_that_is_too_wide_is_split_behind_columns_that_fit() {
        let headings = [("from", false), ("steps", false), ("heap", false), ("late rank", true)];
        let mut table = Table::aligned(&headings).names(3);
        for from in ["1.00 s", "2.00 s"] {
            let row = [from, "1,000,000,000", "100.0 GiB", "rank 0"];
            table.row(row.map(str::to_owned).to_vec());
        }
        let expected = [
            "    from          steps",
            "  1.00 s  1,000,000,000",
            "  2.00 s  1,000,000,000",
            "",
            "    from       heap  late rank",
            "  1.00 s  100.0 GiB  rank 0",
            "  2.00 s  100.0 GiB  rank 0",
        ];
        assert_eq!(table.lines(32), expected);
        // Rows that the first column doesn't tell apart stay whole.
        table.row(["1.00 s", "1", "1.0 GiB", "rank 1"].map(str::to_owned).to_vec());
        assert!(table.lines(32).iter().all(|line| !line.is_empty()));
    }

    #[test]
    fn a_name_without_room_has_a_line_of_its_own() {
        let number = "1".repeat(20);
        let headings = [("a", false), ("b", false), ("c", false), ("name", true)];
        let mut table = Table::aligned(&headings);
        let name = "split_embedding_codegen_forward_weighted_kernel";
        let numbers = [number.clone(), number.clone(), number];
        table.row(numbers.iter().cloned().chain([name.to_owned()]).collect());
        let lines = table.lines(WIDTH);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].ends_with("  name"), "{lines:?}");
        assert_eq!(lines[2], format!("      {name}"));
        let mut table = Table::aligned(&headings);
        table.row(numbers.into_iter().chain(["short".to_owned()]).collect());
        assert_eq!(table.lines(WIDTH).len(), 2);
    }

    #[test]
    fn names_that_differ_in_their_middle_are_shown_apart() {
        let tail = "_of_the_program (main.c:10) < __libc_start_call_main (libc.so.6)";
        let name = |caller: &str| {
            format!("malloc_wrapper (pool.c:4) < load_one < load_all < {caller}{tail}")
        };
        for numbers in [1, 5] {
            let headings = std::iter::repeat_n(("bytes", false), numbers).chain([("name", true)]);
            let mut table = Table::aligned(&headings.collect::<Vec<_>>()).names(numbers);
            for caller in ["first_caller", "second_caller"] {
                let cells = std::iter::repeat_n("1234567890123".to_owned(), numbers);
                table.row(cells.chain([name(caller)]).collect());
            }
            let lines = table.lines(WIDTH).join("\n");
            assert!(lines.contains("first_caller") && lines.contains("second_caller"), "{lines}");
            assert!(lines.lines().all(|line| line.chars().count() <= WIDTH), "{lines}");
        }
    }

    #[test]
    fn columns_are_aligned_after_wide_characters() {
        let mut table = Table::aligned(&[("module", true), ("runs", false), ("kernel", true)]);
        table.row(vec!["libm.so".into(), "1".into(), "gemm".into()]);
        table.row(vec!["行列乘法.so".into(), "12".into(), "行列".into()]);
        let lines = table.lines(WIDTH);
        let begins = |line: &str, name: &str| line.rfind(name).map(|at| width(&line[..at]));
        assert_eq!(begins(&lines[1], "gemm"), begins(&lines[0], "kernel"), "{lines:#?}");
        assert_eq!(begins(&lines[2], "行列"), begins(&lines[0], "kernel"), "{lines:#?}");
    }
}
