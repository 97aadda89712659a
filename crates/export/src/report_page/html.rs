//! Writes a report as HTML.

use std::fmt::Write;

use tprof_facts::markup::escape;

use super::charts;
use super::content::{ReportPage, Section, Table, TableCell};

/// Number of rows of a table that are visible at first. A button shows the other rows.
const ROWS: usize = 12;
/// Severities that have a colour. The headline also contains the severity as a word, for people who
/// cannot see colours.
const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "note"];

pub(super) fn body(title: &str, report: &ReportPage) -> String {
    let mut out = String::new();
    header(&mut out, title, report);
    contents(&mut out, report);
    out += "<main>\n";
    summary(&mut out, report);
    for part in report.sections.iter().filter(|part| part.empty.is_empty()) {
        section(&mut out, part);
    }
    absent(&mut out, report);
    out + "</main>\n"
}

fn header(out: &mut String, title: &str, report: &ReportPage) {
    let _ = write!(
        out,
        "<header class=\"bar\"><h1>{}</h1><span class=\"dim\">{}</span><span class=\"space\"></span>",
        escape(title),
        escape(&report.about),
    );
    for (name, href) in &report.links {
        let _ = write!(out, "<a class=\"button\" href=\"{}\">{}</a>", escape(href), escape(name));
    }
    *out += "<button id=\"print\">Print</button><button id=\"theme\" class=\"icon\"></button></header>\n";
}

fn contents(out: &mut String, report: &ReportPage) {
    *out += "<nav aria-label=\"Contents\"><ol><li><a href=\"#summary\">Summary</a></li>";
    for part in report.sections.iter().filter(|part| part.empty.is_empty()) {
        let _ =
            write!(out, "<li><a href=\"#{}\">{}</a></li>", escape(&part.key), escape(&part.title));
    }
    if report.sections.iter().any(|part| !part.empty.is_empty()) {
        *out += "<li><a href=\"#absent\">Not recorded</a></li>";
    }
    *out += "</ol></nav>\n";
}

fn summary(out: &mut String, report: &ReportPage) {
    let (class, sign) = if report.complete.whole { ("whole", "✓") } else { ("gaps", "!") };
    let _ = write!(
        out,
        "<section id=\"summary\"><h2>Summary</h2><p class=\"verdict {class}\"><b aria-hidden=\"true\">{sign}</b> {}</p>",
        escape(&report.complete.sentence),
    );
    list(out, "gaps", &report.complete.gaps);
    *out += "<dl class=\"facts\">";
    for fact in &report.facts {
        let _ = write!(
            out,
            "<div><dt>{}</dt><dd>{}</dd><dd class=\"dim\">{}</dd></div>",
            escape(&fact.name),
            escape(&fact.value),
            escape(&fact.remark),
        );
    }
    *out += "</dl></section>\n";
}

fn list(out: &mut String, class: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "<ul class=\"{class}\">");
    for item in items {
        let _ = write!(out, "<li>{}</li>", escape(item));
    }
    *out += "</ul>";
}

fn section(out: &mut String, part: &Section) {
    let _ = write!(out, "<section id=\"{}\"><h2>{}</h2>", escape(&part.key), escape(&part.title));
    list(out, "notes", &part.notes);
    for chart in &part.charts {
        charts::chart(out, chart);
    }
    for table in &part.tables {
        if table.cards { cards(out, table) } else { rows(out, table) }
    }
    *out += "</section>\n";
}

fn absent(out: &mut String, report: &ReportPage) {
    let mut none = report.sections.iter().filter(|part| !part.empty.is_empty()).peekable();
    if none.peek().is_none() {
        return;
    }
    *out += "<section id=\"absent\"><h2>Not recorded</h2><dl class=\"absent\">";
    for part in none {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(&part.title), escape(&part.empty));
    }
    *out += "</dl></section>\n";
}

fn head(out: &mut String, table: &Table) {
    if !table.title.is_empty() {
        let _ = write!(out, "<h3>{}</h3>", escape(&table.title));
    }
    if !table.about.is_empty() {
        let _ = write!(out, "<p class=\"dim\">{}</p>", escape(&table.about));
    }
    if table.rows.is_empty() {
        let _ = write!(out, "<p class=\"none\">None: {}</p>", escape(&table.empty));
    }
}

fn rows(out: &mut String, table: &Table) {
    head(out, table);
    if table.rows.is_empty() {
        return;
    }
    let more = table.rows.len().saturating_sub(ROWS);
    *out += "<div class=\"table\"><table><thead><tr>";
    for (heading, words) in &table.headings {
        let class = if *words { " class=\"words\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(heading));
    }
    *out += "</tr></thead><tbody>";
    for (at, row) in table.rows.iter().enumerate() {
        *out += if at < ROWS { "<tr>" } else { "<tr class=\"more\">" };
        for (cell, (_, words)) in row.iter().zip(&table.headings) {
            data(out, cell, *words);
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div>";
    if more > 0 {
        let _ = write!(
            out,
            "<p class=\"unfold\"><button data-more=\"{more}\">{more} more rows</button></p>"
        );
    }
    if table.left_out > 0 {
        let _ = write!(
            out,
            "<p class=\"dim\">{} more are not in this page; the command of this section prints them all.</p>",
            table.left_out,
        );
    }
    list(out, "reasons", &table.reasons);
}

fn data(out: &mut String, cell: &TableCell, words: bool) {
    *out += "<td";
    if words {
        *out += " class=\"words\"";
    }
    if let Some(number) = cell.number.filter(|number| number.is_finite()) {
        let _ = write!(out, " data-number=\"{number}\"");
    }
    if let Some(share) = cell.share.filter(|share| share.is_finite()) {
        let _ = write!(out, " style=\"--share:{:.1}%\"", share.clamp(0.0, 1.0) * 100.0);
    }
    if !cell.title.is_empty() {
        let _ = write!(out, " title=\"{}\"", escape(&cell.title));
    }
    let _ = write!(out, ">{}</td>", anchored(cell, escape(&cell.text)));
}

/// Wraps a cell's escaped text in a link, if the cell has one.
fn anchored(cell: &TableCell, text: String) -> String {
    match cell.href.is_empty() {
        true => text,
        false => format!("<a href=\"{}\">{text}</a>", escape(&cell.href)),
    }
}

/// Returns the text of a cell with its link. Text in backticks becomes code.
fn linked(cell: &TableCell) -> String {
    let escaped = escape(&cell.text);
    let mut text = String::with_capacity(escaped.len());
    let parts: Vec<&str> = escaped.split('`').collect();
    for (at, part) in parts.iter().enumerate() {
        // A backtick without a partner is shown as it is.
        let is_closed = at + 1 < parts.len();
        match (at % 2 == 1, is_closed) {
            (true, true) => text.extend(["<code>", part, "</code>"]),
            (true, false) => text.extend(["`", part]),
            (false, _) => text.push_str(part),
        }
    }
    anchored(cell, text)
}

fn cards(out: &mut String, table: &Table) {
    head(out, table);
    for (at, row) in table.rows.iter().enumerate() {
        let mut cells = row.iter().zip(&table.headings);
        let given = table.severities.get(at);
        let severity = SEVERITIES.iter().find(|one| given.is_some_and(|given| given == *one));
        let class = severity.map_or(String::new(), |severity| format!(" {severity}"));
        let headline = cells.next().map_or("", |(cell, _)| &cell.text);
        let _ = write!(out, "<article class=\"card{class}\"><h4>{}</h4><dl>", escape(headline));
        for (cell, (heading, _)) in cells.filter(|(cell, _)| !cell.text.is_empty()) {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(heading), linked(cell));
        }
        *out += "</dl></article>";
    }
    if table.left_out > 0 {
        let _ = write!(out, "<p class=\"dim\">{} more are not in this page.</p>", table.left_out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_page::{Chart, Completeness, Fact};

    const HOSTILE: &str = "<img src=x onerror=\"a('b')\"></script>";

    #[test]
    fn a_card_has_the_class_of_its_severity() {
        let cell = TableCell { text: "1. HIGH".into(), ..TableCell::default() };
        let severities = vec!["high".into(), "\" onclick=\"a()".into()];
        let rows = vec![vec![cell.clone()], vec![cell]];
        let headings = vec![("finding".into(), true)];
        let table = Table { headings, rows, cards: true, severities, ..Table::default() };
        let mut out = String::new();
        cards(&mut out, &table);
        assert!(out.contains("class=\"card high\""), "{out}");
        assert!(out.contains("class=\"card\"") && !out.contains("onclick"), "{out}");
    }

    #[test]
    fn commands_become_code_and_places_become_links() {
        let cell = |text: &str, href: &str| TableCell {
            text: text.into(),
            href: href.into(),
            ..TableCell::default()
        };
        let shown = linked(&cell("see `tprof report <x>`, or ` alike", ""));
        assert_eq!(shown, "see <code>tprof report &lt;x&gt;</code>, or ` alike");
        let place = linked(&cell("at 3 s", "timeline.html#from=1&to=2"));
        assert_eq!(place, "<a href=\"timeline.html#from=1&amp;to=2\">at 3 s</a>");
    }

    #[test]
    fn no_text_becomes_markup() {
        let cell = TableCell {
            text: HOSTILE.into(),
            title: HOSTILE.into(),
            href: HOSTILE.into(),
            ..TableCell::default()
        };
        let table = Table {
            title: HOSTILE.into(),
            about: HOSTILE.into(),
            headings: vec![(HOSTILE.into(), true)],
            rows: vec![vec![cell]],
            reasons: vec![HOSTILE.into()],
            ..Table::default()
        };
        let cards = Table { cards: true, ..table.clone() };
        let charts = vec![
            Chart::Stacks {
                title: HOSTILE.into(),
                parts: vec![(HOSTILE.into(), HOSTILE.into())],
                rows: vec![(HOSTILE.into(), vec![0.5])],
            },
            Chart::Columns {
                title: HOSTILE.into(),
                columns: vec![(HOSTILE.into(), 1.0, HOSTILE.into(), true)],
            },
            Chart::Curves {
                title: HOSTILE.into(),
                ends: [HOSTILE.into(), HOSTILE.into()],
                curves: vec![(HOSTILE.into(), HOSTILE.into(), vec![Some(1.0), None, Some(2.0)])],
            },
        ];
        let report = ReportPage {
            about: HOSTILE.into(),
            facts: vec![Fact {
                name: HOSTILE.into(),
                value: HOSTILE.into(),
                remark: HOSTILE.into(),
            }],
            complete: Completeness {
                whole: false,
                sentence: HOSTILE.into(),
                gaps: vec![HOSTILE.into()],
            },
            sections: vec![
                Section {
                    key: "a".into(),
                    title: HOSTILE.into(),
                    notes: vec![HOSTILE.into()],
                    charts,
                    tables: vec![table, cards],
                    empty: String::new(),
                },
                Section { title: HOSTILE.into(), empty: HOSTILE.into(), ..Section::default() },
            ],
            links: vec![(HOSTILE.into(), HOSTILE.into())],
        };
        let markup = body(HOSTILE, &report);
        assert!(!markup.contains("<img"), "{markup}");
        assert!(!markup.contains("</script"), "{markup}");
        assert!(!markup.contains("onerror=\""), "{markup}");
        assert!(markup.matches("&lt;img").count() > 20);
    }

    #[test]
    fn further_rows_unfold_and_omitted_rows_are_counted() {
        let row =
            || vec![TableCell { text: "x".into(), number: Some(1.5), ..TableCell::default() }];
        let table = Table {
            headings: vec![("n".into(), false)],
            rows: (0..ROWS + 3).map(|_| row()).collect(),
            left_out: 7,
            ..Table::default()
        };
        let mut out = String::new();
        rows(&mut out, &table);
        assert_eq!(out.matches("<tr class=\"more\">").count(), 3);
        assert!(out.contains("3 more rows"), "{out}");
        assert!(out.contains("7 more are not in this page"), "{out}");
        assert!(out.contains("data-number=\"1.5\""), "{out}");
    }
}
