//! Formats pages as GitHub Markdown, for a comment on a pull request.
//!
//! Names come from the traced program and may contain anything. They appear unchanged, and cannot
//! create markup, links or mentions of people.

use tprof_ui::columns::{cut, printable, shorten};

/// Largest number of characters in a page. GitHub allows 65,536 in a comment, and a comment may
/// contain several pages.
pub const MOST_CHARACTERS: usize = 60_000;
/// Largest number of characters in a cell. The middle of a longer text is left out.
const MOST_IN_CELL: usize = 160;
/// Largest number of characters in a paragraph or an item. The end of a longer text is left out.
const MOST_IN_PARAGRAPH: usize = 4_000;

/// The content of a page, as blocks in order.
#[derive(Default)]
pub struct Markdown {
    blocks: Vec<Block>,
}

/// Lines that belong together.
struct Block {
    kind: Kind,
    lines: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A heading of the next block.
    Heading,
    /// A paragraph of text.
    Text,
    /// Items, one per line.
    List,
    /// Two lines of headings, then rows.
    Table,
    /// Lines in a fixed layout.
    Fixed,
}

impl Markdown {
    /// Adds a heading; level 1 is the largest.
    pub fn heading(&mut self, level: usize, text: &str) {
        let text = format!("{} {}", "#".repeat(level), prose(&cut(text, MOST_IN_CELL)));
        self.blocks.push(Block { kind: Kind::Heading, lines: vec![text] });
    }

    /// Adds a paragraph of text.
    pub fn paragraph(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let text = at_start(prose(&cut(text.trim(), MOST_IN_PARAGRAPH)));
            self.blocks.push(Block { kind: Kind::Text, lines: vec![text] });
        }
    }

    /// Adds a paragraph in bold type that introduces the next block.
    pub fn strong(&mut self, text: &str) {
        let text = format!("**{}**", prose(&cut(text.trim(), MOST_IN_PARAGRAPH)));
        self.blocks.push(Block { kind: Kind::Text, lines: vec![text] });
    }

    /// Adds an item of a list. If there is a label, it comes first.
    pub fn item(&mut self, label: &str, text: &str) {
        let text = prose(&cut(text.trim(), MOST_IN_PARAGRAPH));
        let line = match label {
            "" => format!("- {}", at_start(text)),
            label => format!("- **{}:** {text}", prose(label)),
        };
        self.add(Kind::List, line);
    }

    /// Adds a line that has its own layout.
    pub fn fixed(&mut self, line: &str) {
        let line: String = line.chars().map(printable).collect();
        self.add(Kind::Fixed, line.trim_end().to_owned());
    }

    /// Adds headings and rows. Each column is aligned to the left or to the right. Cells of columns
    /// with names are formatted as code.
    pub fn table(&mut self, columns: &[ColumnForm], rows: &[Vec<String>]) {
        let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let mut rows = rows.iter();
        let headings = rows.next().into_iter().flatten().map(|text| cell(text, ColumnForm::Words));
        let rule = columns.iter().map(|column| match column {
            ColumnForm::Numbers => "---:".to_owned(),
            ColumnForm::Words | ColumnForm::Names => "---".to_owned(),
        });
        let mut lines = vec![row(headings.collect()), row(rule.collect())];
        lines.extend(rows.map(|cells| {
            row(cells.iter().zip(columns).map(|(text, column)| cell(text, *column)).collect())
        }));
        self.blocks.push(Block { kind: Kind::Table, lines });
    }

    fn add(&mut self, kind: Kind, line: String) {
        match self.blocks.last_mut() {
            Some(last) if last.kind == kind => last.lines.push(line),
            _ => self.blocks.push(Block { kind, lines: vec![line] }),
        }
    }

    /// Returns the text, which has at most [`MOST_CHARACTERS`]. If something was left out, the last
    /// line says so.
    pub fn into_text(self) -> String {
        let last = "_The rest is left out: it does not fit a comment. `--top N` and fewer kinds shorten \
                    a report; `--json` has all of it._";
        let room = MOST_CHARACTERS - last.len() - 16;
        let mut text = String::new();
        let mut used = 0;
        for block in &self.blocks {
            let fence = fence(block);
            let whole = block.text(&fence, block.lines.len());
            let length = whole.chars().count() + 1;
            if used + length <= room {
                text += &whole;
                text.push('\n');
                used += length;
                continue;
            }
            // Lines are kept as long as they fit. Headings without a row are left out.
            let taken = |lines: usize| block.text(&fence, lines).chars().count() + 1;
            let fits = (0..block.lines.len()).rev().find(|lines| used + taken(*lines) <= room);
            let least = if block.kind == Kind::Table { 3 } else { 1 };
            if let Some(lines) = fits.filter(|lines| *lines >= least) {
                text += &block.text(&fence, lines);
                text.push('\n');
            }
            return text + last + "\n";
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }
}

impl Block {
    fn text(&self, fence: &str, lines: usize) -> String {
        let lines: String = self.lines[..lines].iter().map(|line| format!("{line}\n")).collect();
        match self.kind {
            Kind::Fixed => format!("{fence}text\n{lines}{fence}\n"),
            _ => lines,
        }
    }
}

/// Returns a fence that is longer than any sequence of backticks in the block.
fn fence(block: &Block) -> String {
    let longest = block.lines.iter().map(|line| longest_run(line)).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// How the cells of a column are formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnForm {
    /// Aligned to the right.
    Numbers,
    /// Aligned to the left.
    Words,
    /// Aligned to the left, as code.
    Names,
}

fn cell(text: &str, form: ColumnForm) -> String {
    let text = shorten(text.trim(), MOST_IN_CELL);
    // A cell with a backslash before a bar is not formatted as code, because in code the bar would
    // end the cell.
    let is_name = form == ColumnForm::Names && !matches!(text.as_str(), "" | "-" | "?");
    let made = if is_name && !text.contains("\\|") { code(&text) } else { prose(&text) };
    made.replace('|', "\\|")
}

/// Formats a name as code.
fn code(name: &str) -> String {
    let name: String = name.chars().map(printable).collect();
    let ticks = "`".repeat(longest_run(&name) + 1);
    let pad = if name.starts_with('`') || name.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{name}{pad}{ticks}")
}

/// Escapes all markup in a text, except pairs of backticks.
fn prose(text: &str) -> String {
    let text: String = text.chars().map(printable).collect();
    let parts: Vec<&str> = text.split('`').collect();
    // Backticks are kept only if they are pairs and no pair touches another.
    let is_inside = |at: usize| at > 0 && at + 1 < parts.len();
    let beside = parts.iter().enumerate().any(|(at, part)| is_inside(at) && part.trim().is_empty());
    if parts.len().is_multiple_of(2) || beside {
        return escaped(&text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => escaped(part),
        _ => format!("`{part}`"),
    };
    parts.iter().enumerate().map(part).collect()
}

/// Escapes all markup in a text.
fn escaped(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' => {
                made.push('\\');
                made.push(c);
            }
            '<' => made += "&lt;",
            '>' => made += "&gt;",
            '&' => made += "&amp;",
            // A zero-width character prevents a mention of a person and a link to an issue.
            '@' => made += "@&#8203;",
            '#' => made += "#&#8203;",
            c => made.push(c),
        }
    }
    // GitHub would turn addresses into links.
    made.replace("://", ":&#8203;//").replace("www.", "www&#8203;.")
}

/// Prevents a line from being read as a list, a quote or a rule because of its beginning.
fn at_start(text: String) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let after = text[digits..].strip_prefix(['.', ')']);
    match text.chars().next() {
        Some('-' | '+' | '=') => format!("\\{text}"),
        // The line is only a number and a dot or bracket, which begins a list too.
        Some(_)
            if digits > 0 && after.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')) =>
        {
            format!("{}\\{}", &text[..digits], &text[digits..])
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [ColumnForm; 3] = [ColumnForm::Numbers, ColumnForm::Words, ColumnForm::Names];

    fn row(cells: [&str; 3]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn a_number_alone_on_a_line_begins_no_list() {
        assert_eq!(at_start("2.".to_owned()), "2\\.");
        assert_eq!(at_start("2) a".to_owned()), "2\\) a");
        assert_eq!(at_start("2.5 ms".to_owned()), "2.5 ms");
    }

    #[test]
    fn numbers_are_right_aligned_and_names_are_code() {
        let mut page = Markdown::default();
        page.heading(3, "Kernels");
        page.table(
            &COLUMNS,
            &[row(["total", "rank", "kernel"]), row(["1.2 ms", "rank 0", "void f<int>(a|b*)"])],
        );
        assert_eq!(
            page.into_text(),
            "### Kernels\n\n| total | rank | kernel |\n| ---: | --- | --- |\n\
             | 1.2 ms | rank 0 | `void f<int>(a\\|b*)` |\n"
        );
    }

    #[test]
    fn names_cannot_create_markup() {
        for (name, shown) in [
            ("a*b_c [x](y)", "a\\*b\\_c \\[x\\](y)"),
            ("<img src=x>", "&lt;img src=x&gt;"),
            ("@user #12", "@&#8203;user #&#8203;12"),
            ("https://x.y", "https:&#8203;//x.y"),
            ("one ` tick", "one \\` tick"),
            ("two `` ticks", "two \\`\\` ticks"),
            ("`a``b`", "\\`a\\`\\`b\\`"),
            ("run `tprof doctor --x_y`, then", "run `tprof doctor --x_y`, then"),
            ("a\nb\u{1b}[31m", "a b\u{fffd}\\[31m"),
        ] {
            assert_eq!(prose(name), shown, "{name}");
        }
        assert_eq!(code("`x` y``"), "``` `x` y`` ```");
        assert_eq!(cell("a | b", ColumnForm::Words), "a \\| b");
        assert_eq!(cell("`a|b` \\|", ColumnForm::Words), "`a\\|b` \\\\\\|");
        assert_eq!(at_start("- x".into()), "\\- x");
        assert_eq!(at_start("12. x".into()), "12\\. x");
        assert_eq!(at_start("1.5 s".into()), "1.5 s");
    }

    /// Returns the headings, code and text of a page as a Markdown reader shows them. Panics if the
    /// page contains any other markup.
    fn read(text: &str) -> Vec<String> {
        use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let (mut texts, mut open) = (Vec::new(), String::new());
        for event in Parser::new_ext(text, options) {
            match event {
                Event::Text(part) | Event::Code(part) => open += &part.replace('\u{200b}', ""),
                Event::Start(
                    Tag::Paragraph
                    | Tag::Heading { .. }
                    | Tag::List(None)
                    | Tag::Item
                    | Tag::Table(_)
                    | Tag::TableHead
                    | Tag::TableRow
                    | Tag::TableCell
                    | Tag::Strong
                    | Tag::CodeBlock(_),
                ) => {}
                Event::End(TagEnd::Strong | TagEnd::List(false) | TagEnd::Table) => {}
                Event::End(TagEnd::TableHead | TagEnd::TableRow) => {}
                Event::End(_) => texts.push(std::mem::take(&mut open)),
                other => panic!("{other:?} in {text}"),
            }
        }
        texts
    }

    proptest! {
        #[test]
        fn a_markdown_reader_shows_names_unchanged(
            name in r"[a-z ]{0,3}(\PC|[-*_~#|\\<>`@&.:/\[\]()!0-9 \n]){1,12}[a-z]{0,3}"
        ) {
            let plain = |text: &str| -> String {
                text.split_whitespace().collect::<Vec<_>>().join(" ").replace('\u{200b}', "")
            };
            let shown = plain(&name.chars().map(printable).collect::<String>());
            prop_assume!(!shown.is_empty());
            // In prose, pairs of backticks mark code, and are not shown.
            let without_ticks = |text: &str| plain(&text.replace('`', ""));
            let mut page = Markdown::default();
            page.heading(2, &name);
            page.table(&COLUMNS, &[row(["a", "b", "c"]), row(["1", &name, &name])]);
            page.item("label", &name);
            page.paragraph(&name);
            page.fixed(&format!("  {name}"));
            let texts: Vec<String> = read(&page.into_text()).iter().map(|text| plain(text)).collect();
            prop_assert_eq!(texts.len(), 1 + 6 + 1 + 1 + 1, "{:?}", texts);
            for at in [0, 5, 8, 9] {
                prop_assert_eq!(without_ticks(&texts[at]), without_ticks(&shown), "{} of {:?}", at, texts);
            }
            prop_assert_eq!(without_ticks(&texts[6]), without_ticks(&shown));
            prop_assert_eq!(without_ticks(&texts[7]), plain(&format!("label: {}", without_ticks(&shown))));
        }
    }

    #[test]
    fn the_content_of_fixed_lines_cannot_end_their_block() {
        let mut page = Markdown::default();
        page.fixed("  a  ````");
        page.fixed("  b");
        page.paragraph("x");
        assert_eq!(page.into_text(), "`````text\n  a  ````\n  b\n`````\n\nx\n");
    }

    #[test]
    fn a_page_fits_a_comment() {
        let mut page = Markdown::default();
        page.item("label", "text");
        page.item("", "more");
        let rows = vec![row(["1", "é", "name"]); 5_000];
        page.table(&COLUMNS, &rows);
        page.paragraph("after");
        let text = page.into_text();
        assert!(
            text.starts_with("- **label:** text\n- more\n\n| 1 | é | name |\n| ---: |"),
            "{text}"
        );
        let length = text.chars().count();
        assert!(length <= MOST_CHARACTERS && length > MOST_CHARACTERS - 400, "{length}");
        let mut last = text.lines().rev();
        assert!(last.next().unwrap().starts_with("_The rest is left out"));
        assert_eq!((last.next(), last.next()), (Some(""), Some("| 1 | é | `name` |")));
        assert!(!text.contains("after"));
    }
}
