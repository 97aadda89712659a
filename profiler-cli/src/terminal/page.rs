//! Text for a terminal of 80 columns.
//!
//! Names come from the traced program and may hold anything; control characters
//! are replaced here, so that no name can drive the reader's terminal.

/// Columns of a page.
pub const WIDTH: usize = 80;
/// Columns of a field's label and the space behind it.
const LABEL: usize = 14;

/// A page in the making.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// One line, cut at the page's edge.
    pub fn line(&mut self, text: &str) {
        let text: String = text.chars().map(printable).collect();
        self.text += shorten(&text, WIDTH).trim_end();
        self.text.push('\n');
    }

    /// An empty line.
    pub fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// A heading, after an empty line.
    pub fn heading(&mut self, text: &str) {
        self.gap();
        self.line(text);
    }

    /// A label and its text, wrapped beside it.
    pub fn field(&mut self, label: &str, text: &str) {
        for (i, part) in wrap(text, WIDTH - LABEL - 2).into_iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.line(&format!("  {label:<LABEL$}{part}"));
        }
    }

    /// A paragraph, indented and wrapped.
    pub fn paragraph(&mut self, indent: usize, text: &str) {
        for part in wrap(text, WIDTH - indent) {
            self.line(&format!("{:indent$}{part}", ""));
        }
    }

    /// A list item, wrapped behind its dash.
    pub fn item(&mut self, text: &str) {
        for (i, part) in wrap(text, WIDTH - 4).into_iter().enumerate() {
            self.line(&format!("  {} {part}", if i == 0 { '-' } else { ' ' }));
        }
    }
}

fn printable(c: char) -> char {
    // Besides control characters, those that turn the direction of text around.
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match c {
        '\n' | '\t' => ' ',
        c if c.is_control() || turns => '\u{fffd}',
        c => c,
    }
}

/// Words of a text; a number and its unit are one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
        let unit = word.trim_end_matches(['.', ',', ';', ')', ':']).trim_end_matches("/s");
        let is_unit =
            matches!(unit, "B" | "KiB" | "MiB" | "GiB" | "TiB" | "ns" | "us" | "ms" | "s" | "%");
        match words.last_mut() {
            Some(last) if is_unit && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                *last += word;
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Breaks text between words; one that is longer than a line is cut in its middle.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
        let word = shorten(&word, width);
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            *line += &word;
            used += length;
        }
    }
    lines
}

/// Text of at most `width` characters, its middle left out where it is longer.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    // The beginning tells more than the end, but the end is never left out.
    let head = width.saturating_sub(1) * 3 / 5;
    let tail = width.saturating_sub(1) - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}\u{2026}{end}")
}

/// Columns that a last column of names should get, if it has use for them.
const NAME: usize = 32;
/// Columns with which a name still tells something; with fewer, and where that is not
/// enough for all, each has a line of its own.
const LEAST_NAME: usize = 20;
/// Columns before a name on a line of its own.
const INDENT: usize = 6;
/// Columns that are left to a column of words.
const WORDS: usize = 12;

/// Rows in columns; the last one is cut at the edge if it is left-aligned.
pub struct Table {
    left: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings, right-aligned but for the last column.
    pub fn new(headings: &[&str]) -> Table {
        let last = headings.len().saturating_sub(1);
        let aligned: Vec<(&str, bool)> =
            headings.iter().enumerate().map(|(at, &text)| (text, at == last)).collect();
        Table::aligned(&aligned)
    }

    /// A table with these headings, each with whether it is left-aligned.
    pub fn aligned(headings: &[(&str, bool)]) -> Table {
        Table {
            left: headings.iter().map(|(_, left)| *left).collect(),
            rows: vec![headings.iter().map(|(text, _)| (*text).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Widths of columns, those of words narrowed as far as a last column of names needs room.
    fn fitted(&self, mut widths: Vec<usize>) -> Vec<usize> {
        let (Some(true), Some(wanted)) = (self.left.last(), widths.last().copied()) else {
            return widths;
        };
        let wanted = wanted.min(NAME);
        let last = widths.len() - 1;
        loop {
            let taken: usize = widths[..last].iter().map(|width| width + 2).sum();
            if taken + 2 + wanted <= WIDTH {
                return widths;
            }
            let words = (0..last).filter(|&at| self.left[at] && widths[at] > WORDS);
            match words.max_by_key(|&at| widths[at]) {
                Some(widest) => widths[widest] -= 1,
                None => return widths,
            }
        }
    }

    /// The lines, indented by two.
    pub fn lines(self) -> Vec<String> {
        let columns = self.left.len();
        let wide = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let wanted = wide(columns.saturating_sub(1));
        let widths = self.fitted((0..columns).map(wide).collect());
        let taken: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let room = WIDTH.saturating_sub(taken + 2);
        let below = self.left.last() == Some(&true) && room < LEAST_NAME.min(wanted);
        let line = |(at, row): (usize, &Vec<String>)| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                let left = self.left.get(column).copied().unwrap_or(false);
                line += "  ";
                if column + 1 == columns && below && at > 0 {
                    let name = shorten(cell.trim(), WIDTH - INDENT);
                    return vec![line.trim_end().to_owned(), format!("{:INDENT$}{name}", "")];
                }
                if column + 1 == columns && left {
                    let room = WIDTH.saturating_sub(line.chars().count());
                    line += &shorten(cell.trim(), room);
                } else if left {
                    line += &format!("{:<width$}", shorten(cell, width));
                } else {
                    line += &format!("{cell:>width$}");
                }
            }
            vec![line]
        };
        self.rows.iter().enumerate().flat_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_the_page() {
        let mut page = Page::default();
        let long = "word ".repeat(50) + &"x".repeat(300);
        page.line(&long);
        page.field("label", &long);
        page.item(&long);
        page.paragraph(6, &long);
        let mut table = Table::new(&["a", "name"]);
        table.row(vec!["1".into(), long]);
        table.lines().iter().for_each(|line| page.line(line));
        for line in page.into_text().lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn words_make_room_for_names() {
        let mut table = Table::aligned(&[("total", false), ("module", true), ("function", true)]);
        let module = "_multiarray_umath.cpython-311-x86_64-linux-gnu.so with a tail";
        let function = "numpy.core._multiarray_umath.einsum_sum_of_products_two";
        table.row(vec!["1.0 ms".into(), module.into(), function.into()]);
        let lines = table.lines();
        assert!(lines[1].chars().count() <= WIDTH, "{lines:?}");
        assert!(lines[1].starts_with("  1.0 ms  _multiarray_umath"), "{lines:?}");
        assert!(lines[1].ends_with("_products_two"), "{lines:?}");
    }

    #[test]
    fn a_name_without_room_has_a_line_of_its_own() {
        let number = "1".repeat(20);
        let headings = [("a", false), ("b", false), ("c", false), ("name", true)];
        let mut table = Table::aligned(&headings);
        let name = "split_embedding_codegen_forward_weighted_kernel";
        let numbers = [number.clone(), number.clone(), number];
        table.row(numbers.iter().cloned().chain([name.to_owned()]).collect());
        let lines = table.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].ends_with("  name"), "{lines:?}");
        assert_eq!(lines[2], format!("      {name}"));
        let mut table = Table::aligned(&headings);
        table.row(numbers.into_iter().chain(["short".to_owned()]).collect());
        assert_eq!(table.lines().len(), 2);
    }

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(
            wrap("live at exit: 1.1 GiB, 3 calls", 19),
            ["live at exit:", "1.1 GiB, 3 calls"]
        );
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        let mut page = Page::default();
        page.line("a\x1b[31mb\u{202e}c\nd");
        assert_eq!(page.into_text(), "a\u{fffd}[31mb\u{fffd}c d\n");
    }

    #[test]
    fn the_middle_is_left_out() {
        assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
        assert_eq!(shorten("abcdefghijk", 6), "abc\u{2026}jk");
        assert_eq!(shorten("abc", 1), "\u{2026}");
    }
}
