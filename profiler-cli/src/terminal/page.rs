//! Formats pages for people: text as wide as the terminal, or Markdown.
//!
//! Names come from the traced program and may contain anything. Control characters are replaced
//! here, so that no name can control the reader's terminal.

use tprof_ui::columns::{left, printable, shorten};

use super::markdown::Markdown;
use super::table::Table;
use super::wrap::wrap;

/// Width of a field's label, including the space after it, in columns.
const LABEL: usize = 14;

/// Largest width of running text in columns. Longer lines are hard to read.
const PROSE: usize = 100;

/// Width of preformatted lines in Markdown, in columns.
const OF_MARKDOWN: usize = 110;

/// Output form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text with lines of at most this many columns.
    Text(usize),
    /// Markdown for GitHub.
    Markdown,
}

/// A page that is being built.
pub struct Page {
    text: String,
    width: usize,
    markdown: Option<Markdown>,
}

impl Page {
    /// Creates an empty page.
    pub fn new(form: Form) -> Page {
        let (width, markdown) = match form {
            Form::Text(width) => (width, None),
            Form::Markdown => (OF_MARKDOWN, Some(Markdown::default())),
        };
        Page { text: String::new(), width, markdown }
    }

    /// Returns the width of the page in columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the finished text.
    pub fn into_text(self) -> String {
        self.markdown.map_or(self.text, Markdown::into_text)
    }

    /// Adds the page's first line.
    pub fn title(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.heading(2, text),
            None => self.cut_line(text),
        }
    }

    /// Adds the heading of one of several parts of a page.
    pub fn part(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.heading(3, text),
            None => self.heading(&format!("== {text}")),
        }
    }

    /// Adds one line of prose, cut at the page's edge.
    pub fn line(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.paragraph(text),
            None => self.cut_line(text),
        }
    }

    /// Adds one line that has its own layout, cut at the page's edge.
    pub fn fixed(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.fixed(&shorten(text, OF_MARKDOWN)),
            None => self.cut_line(text),
        }
    }

    /// Adds a command for the reader to copy, which is never cut.
    pub fn command(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.fixed(text),
            None => {
                let text: String = text.chars().map(printable).collect();
                self.text += &format!("    {text}\n");
            }
        }
    }

    fn cut_line(&mut self, text: &str) {
        let text: String = text.chars().map(printable).collect();
        self.text += shorten(&text, self.width).trim_end();
        self.text.push('\n');
    }

    /// Adds an empty line.
    pub fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Adds a heading after an empty line.
    pub fn heading(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.heading(4, text),
            None => {
                self.gap();
                self.cut_line(text);
            }
        }
    }

    /// Adds a heading, wrapped into lines.
    pub fn caption(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.heading(4, text),
            None => {
                self.gap();
                self.paragraph(0, text);
            }
        }
    }

    /// Adds the first line of a card; the next lines describe it.
    pub fn lead(&mut self, text: &str) {
        match &mut self.markdown {
            Some(markdown) => markdown.strong(text),
            None => {
                self.gap();
                self.paragraph(0, text);
            }
        }
    }

    /// Adds a label, and next to it a text that is wrapped.
    pub fn field(&mut self, label: &str, text: &str) {
        if let Some(markdown) = &mut self.markdown {
            return markdown.item(label, text);
        }
        for (i, part) in wrap(text, self.prose() - LABEL - 2).into_iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.cut_line(&format!("  {}{part}", left(label, LABEL)));
        }
    }

    /// Adds a paragraph, indented and wrapped.
    pub fn paragraph(&mut self, indent: usize, text: &str) {
        if let Some(markdown) = &mut self.markdown {
            return markdown.paragraph(text);
        }
        for part in wrap(text, self.prose() - indent) {
            self.cut_line(&format!("{:indent$}{part}", ""));
        }
    }

    /// Adds rows in columns, laid out by [`Table`].
    pub fn table(&mut self, table: &Table) {
        self.rows_from(table, 0);
    }

    /// Adds rows in columns, without their headings.
    pub fn rows(&mut self, table: &Table) {
        self.rows_from(table, 1);
    }

    fn rows_from(&mut self, table: &Table, first: usize) {
        if let Some(markdown) = &mut self.markdown {
            return markdown.table(&table.forms(), table.all());
        }
        for line in table.lines(self.width).into_iter().skip(first) {
            self.cut_line(&line);
        }
    }

    /// Returns the width of running text in columns.
    fn prose(&self) -> usize {
        self.width.min(PROSE)
    }

    /// Adds a list item, wrapped after its dash.
    pub fn item(&mut self, text: &str) {
        if let Some(markdown) = &mut self.markdown {
            return markdown.item("", text);
        }
        for (i, part) in wrap(text, self.prose() - 4).into_iter().enumerate() {
            self.cut_line(&format!("  {} {part}", if i == 0 { '-' } else { ' ' }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = tprof_ui::columns::USUAL;

    #[test]
    fn no_line_is_wider_than_the_page() {
        let mut page = Page::new(Form::Text(WIDTH));
        let long = "word ".repeat(50) + &"x".repeat(300);
        page.line(&long);
        page.field("label", &long);
        page.item(&long);
        page.paragraph(6, &long);
        let mut table = Table::new(&["a", "name"]);
        table.row(vec!["1".into(), long]);
        page.table(&table);
        for line in page.into_text().lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn no_number_is_cut() {
        let headings = [("rank", true), ("a", false), ("b", false), ("c", false), ("d", false)];
        for (digits, lines) in [(16, 2), (18, 4)] {
            let mut table = Table::aligned(&headings);
            let number = "1".repeat(digits);
            let numbers = std::iter::repeat_n(number.clone(), headings.len() - 1);
            table.row(std::iter::once("rank 1".to_owned()).chain(numbers).collect());
            let mut page = Page::new(Form::Text(WIDTH));
            page.table(&table);
            let text = page.into_text();
            assert_eq!(text.matches(&number).count(), headings.len() - 1, "{text}");
            assert_eq!(text.lines().count(), lines, "{text}");
        }
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let mut page = Page::new(Form::Text(WIDTH));
        page.line("a\x1b[31mb\u{202e}c\nd");
        assert_eq!(page.into_text(), "a\u{fffd}[31mb\u{fffd}c d\n");
    }
}
