//! Formats a result as aligned columns. Numbers are on the right, texts on the left, and nulls are
//! empty. Rows are collected up to a limit before the first is printed, because the width of a
//! column depends on all of them.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use tprof_ui::columns::{cut, left, printable, right, shorten, width};

/// Number of rows to show.
const ROWS: usize = 10_000;
/// Bytes of cells to keep: a text can be megabytes long.
const BYTES: usize = 64 << 20;
/// Smallest width of a text, in columns, if not everything fits.
const WORDS: usize = 16;
/// Largest width of a text, in columns, if there is no terminal.
const WIDEST: usize = 1000;

/// Rows so far.
pub struct TableText {
    headings: Vec<String>,
    /// Whether each column is right-aligned.
    is_number: Vec<bool>,
    rows: Vec<Vec<String>>,
    bytes: usize,
    is_cut: bool,
    /// Whether it is the output of `EXPLAIN`.
    is_plan: bool,
}

impl TableText {
    /// Creates a table without rows.
    pub fn new(schema: &Schema) -> TableText {
        let fields = schema.fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let is_plan = matches!(names[..], ["plan_type", "plan"] | ["plan"]);
        TableText {
            is_plan,
            headings: fields.iter().map(|field| clean(field.name())).collect(),
            is_number: fields.iter().map(|field| field.data_type().is_numeric()).collect(),
            rows: Vec::new(),
            bytes: 0,
            is_cut: false,
        }
    }

    /// Adds rows. Returns false if no more are wanted.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<bool, ArrowError> {
        let options = FormatOptions::new().with_null("");
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            if self.rows.len() == ROWS || self.bytes > BYTES {
                self.is_cut = true;
                return Ok(false);
            }
            let cells = columns.iter().map(|column| {
                let text = column.value(row).try_to_string()?;
                Ok(if self.is_plan { text } else { clean(&text) })
            });
            let cells = cells.collect::<Result<Vec<_>, ArrowError>>()?;
            self.bytes += cells.iter().map(String::len).sum::<usize>();
            self.rows.push(cells);
        }
        Ok(true)
    }

    /// Returns a note if not everything is shown.
    pub fn note(&self) -> Option<String> {
        let rows = self.rows.len();
        self.is_cut.then(|| {
            format!("note: the first {rows} rows; LIMIT chooses others, --format csv has all\n")
        })
    }

    /// Returns the lines, at most `page` columns wide. Columns that do not fit are listed below.
    pub fn text(&self, page: Option<usize>) -> String {
        if self.is_plan {
            return self.plan();
        }
        let widths = self.fitted(page);
        let mut text = self.line(&self.headings, &widths);
        for row in &self.rows {
            text += &self.line(row, &widths);
        }
        let left_out = &self.headings[widths.len()..];
        if !left_out.is_empty() {
            let names = left_out.join(", ");
            let line = format!("  and {} more columns: {names}", left_out.len());
            text += &page.map_or(line.clone(), |page| cut(&line, page));
            text.push('\n');
        }
        text
    }

    /// Formats a plan, a text of several lines whose indentation shows which operator uses which.
    fn plan(&self) -> String {
        let part = |row: &Vec<String>| row.join("\n").trim_end().to_owned();
        let parts: Vec<String> = self.rows.iter().map(part).collect();
        parts.join("\n\n") + "\n"
    }

    /// Returns the widths of the columns that fit.
    fn fitted(&self, page: Option<usize>) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let wide = |column: usize| {
            let cells = cells(column).map(|cell| width(cell)).max().unwrap_or(0);
            cells.max(width(&self.headings[column])).min(WIDEST)
        };
        let mut widths: Vec<usize> = (0..self.headings.len()).map(wide).collect();
        let Some(page) = page else { return widths };
        let taken = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>();
        while taken(&widths) > page {
            let words = (0..widths.len()).filter(|&at| !self.is_number[at] && widths[at] > WORDS);
            match words.max_by_key(|&at| widths[at]) {
                Some(widest) => {
                    let over = taken(&widths) - page;
                    widths[widest] -= over.min(widths[widest] - WORDS).clamp(1, 8);
                }
                None if widths.len() > 1 => {
                    widths.pop();
                }
                None => break,
            }
        }
        // If a column was left out, the texts use its room.
        self.widen(&mut widths, page);
        widths
    }

    fn widen(&self, widths: &mut [usize], page: usize) {
        let mut free = page.saturating_sub(widths.iter().map(|width| width + GAP).sum::<usize>());
        for (at, width_of) in widths.iter_mut().enumerate() {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell));
            let wanted = cells.max().unwrap_or(0).min(WIDEST).saturating_sub(*width_of).min(free);
            *width_of += wanted;
            free -= wanted;
        }
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, (cell, &room)) in cells.iter().zip(widths).enumerate() {
            line += "  ";
            line += &match self.is_number[at] {
                true => right(&shorten(cell, room), room),
                false => left(&shorten(cell, room), room),
            };
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Number of spaces before each column.
const GAP: usize = 2;

/// Replaces characters that would control the terminal.
fn clean(text: &str) -> String {
    text.chars().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&[&str]]) -> TableText {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        TableText {
            headings: vec!["name".into(), "sum_ns".into(), "args".into()],
            is_number: vec![false, true, false],
            rows: rows.iter().map(row).collect(),
            bytes: 0,
            is_cut: false,
            is_plan: false,
        }
    }

    #[test]
    fn numbers_are_right_aligned_and_lines_fit_the_page() {
        let table = table(&[&["gemm", "12", ""], &[&"x".repeat(90), "1234567", &"y".repeat(90)]]);
        let whole = table.text(None);
        assert!(whole.lines().nth(1).unwrap().ends_with("       12"), "{whole}");
        assert!(whole.contains(&"y".repeat(90)));
        for page in [40, 60, 80, 120] {
            let text = table.text(Some(page));
            assert!(text.lines().all(|line| width(line) <= page), "{page}:\n{text}");
            assert!(text.contains("1234567"), "{page}:\n{text}");
        }
    }

    #[test]
    fn a_column_that_does_not_fit_is_named() {
        let table = table(&[&[&"x".repeat(20), &"1".repeat(19), "y"]]);
        let text = table.text(Some(40));
        assert!(text.lines().last().unwrap().contains("1 more columns: args"), "{text}");
    }
}
