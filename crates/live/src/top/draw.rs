//! Draws the screen: the run, the table of ranks, the chart of a metric, stalls and events, and the
//! keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline, SparklineBar, Wrap};
use tprof_facts::units::counted;

use super::cells::{clean, value};
use super::phrases;
use super::table::{Column, Tone, cell, columns, tone};
use super::view::View;
use crate::snapshot::RunState;

/// Resolution of the chart: values are scaled to this many steps.
const CHART_STEPS: f64 = 1000.0;

const KEYS: [(&str, &str); 7] = [
    ("↑ ↓ j k", "another rank"),
    ("PgUp PgDn", "ten ranks further"),
    ("Home End", "first and last rank"),
    ("m", "another number in the chart"),
    ("s", "another order: worst first, by rank, by the number"),
    ("?", "this list"),
    ("q Ctrl-C", "end; the run goes on"),
];

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let failed = view.now.ranks.iter().filter(|rank| rank.out_of_memory.is_some()).count();
    let stalls = (view.now.stalls.len() + failed).min(usize::from(area.height / 5)) as u16;
    let (chart, events) = match area.height {
        0..16 => (0, 2),
        16..30 => (4, 4),
        _ => (8, 8),
    };
    let rows = u16::try_from(view.now.ranks.len()).unwrap_or(u16::MAX).clamp(1, 1 << 12);
    let verdict = phrases::verdict(view).unwrap_or_default();
    let verdict_lines = verdict.chars().count().div_ceil(usize::from(area.width.max(1)));
    // Breaks between words may need another line.
    let verdict_lines = match verdict_lines {
        0 | 1 => verdict_lines,
        more => (more + 1).min(usize::from(area.height / 5)),
    } as u16;
    // The table gets the lines that the other parts leave, up to one per rank. Lines beyond that go
    // to events.
    let room = area.height.saturating_sub(4 + verdict_lines + chart + stalls + events);
    let parts = [
        Constraint::Length(3),
        Constraint::Length(verdict_lines),
        Constraint::Length((rows + 1).min(room.max(3))),
        Constraint::Length(chart),
        Constraint::Min(stalls + events),
        Constraint::Length(1),
    ];
    let [head, why, table, course, below, keys] = Layout::vertical(parts).areas(area);
    draw_head(frame, head, view);
    let why_style = bold().fg(Color::Red);
    frame.render_widget(Paragraph::new(verdict).style(why_style).wrap(Wrap { trim: true }), why);
    draw_table(frame, table, view);
    draw_course(frame, course, view);
    draw_events(frame, below, view);
    draw_keys(frame, keys, view);
    if view.help {
        draw_help(frame, area);
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Faint => faint(),
        Tone::Alarming => Style::new().fg(Color::Red),
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let colour = match view.now.state {
        RunState::Running => Color::Green,
        RunState::Finished => Color::Cyan,
        RunState::CutOff => Color::Red,
    };
    let mut state = vec![Span::styled(phrases::state(view), bold().fg(colour))];
    if let Some(why) = &view.ended {
        state.push(Span::styled(format!("  ({})", clean(why)), Style::new().fg(Color::Red)));
    }
    let lost = if view.now.totals.lost > 0 { Style::new().fg(Color::Yellow) } else { Style::new() };
    let lines = vec![
        Line::styled(phrases::command(view), bold()),
        Line::from(state),
        Line::styled(phrases::totals(view), lost),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let columns = columns(view, area.width.into());
    let order = view.order();
    let selected = view.selected(&order);
    let line = selected.and_then(|at| order.iter().position(|of| *of == at)).unwrap_or(0);
    let rows = usize::from(area.height.saturating_sub(1));
    // The selected rank stays in the middle of the table, unless it is near the first or the last
    // rank.
    let first = line.saturating_sub(rows / 2).min(order.len().saturating_sub(rows));
    let titles = columns.iter().map(|column| (*column, column.title().to_owned()));
    let mut lines = vec![Line::styled(line_of(titles), bold().add_modifier(Modifier::UNDERLINED))];
    for at in order.iter().skip(first).take(rows) {
        let cells = columns.iter().map(|column| (*column, cell(view, *at, *column)));
        let mut style = style_of(tone(view, *at));
        if Some(*at) == selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        lines.push(Line::styled(line_of(cells), style));
    }
    if order.is_empty() {
        lines.push(Line::styled("no trace file has been written yet", faint()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Joins cells to a line, each cut to its column's width.
fn line_of(cells: impl Iterator<Item = (Column, String)>) -> String {
    let mut line = String::new();
    for (column, cell) in cells {
        let width = column.width();
        let cell: String = cell.chars().take(width).collect();
        let padded = match column.is_number() {
            true => format!("{cell:>width$} "),
            false => format!("{cell:<width$} "),
        };
        line.push_str(&padded);
    }
    line
}

fn draw_course(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let order = view.order();
    let (Some(at), Some(metric)) = (view.selected(&order), view.metric()) else { return };
    if area.height < 2 {
        return;
    }
    let course = view.course(at);
    let shown = &course[course.len().saturating_sub(area.width.into())..];
    let known = || shown.iter().flatten().copied();
    let (least, most) = (known().reduce(f64::min), known().reduce(f64::max));
    let of = |number| value(number, &metric.unit);
    let title = match most {
        Some(_) => format!(
            " {} of {}: {} (least {}, most {}) ",
            clean(&metric.about),
            clean(&view.now.ranks[at].label),
            of(course.last().copied().flatten()),
            of(least),
            of(most)
        ),
        None => format!(" {}: not known of this rank ", clean(&metric.about)),
    };
    let top = most.filter(|most| *most > 0.0).unwrap_or(1.0);
    let bar = |number: &Option<f64>| {
        // A cast turns values below 0 into 0.
        SparklineBar::from(number.map(|number| (number / top * CHART_STEPS) as u64))
    };
    let chart = Sparkline::default()
        .block(Block::new().borders(Borders::TOP).title(title))
        .data(shown.iter().map(bar).collect::<Vec<_>>())
        .max(CHART_STEPS as u64)
        .style(Style::new().fg(Color::Cyan));
    frame.render_widget(chart, area);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let block = Block::new().borders(Borders::TOP).title(" stalls and events ");
    let inner = usize::from(block.inner(area).height);
    let mut stalls: Vec<_> = view.now.stalls.iter().collect();
    stalls.sort_by_key(|stall| std::cmp::Reverse(stall.for_ns));
    let red = Style::new().fg(Color::Red);
    let room = (inner / 2).max(1);
    let failed = view.now.ranks.iter().filter_map(phrases::out_of_memory);
    let alarms: Vec<String> = stalls.into_iter().map(phrases::stall).chain(failed).collect();
    let mut lines: Vec<Line<'_>> =
        alarms.iter().take(room).map(|text| Line::styled(text.clone(), red)).collect();
    if alarms.len() > room {
        let more = counted((alarms.len() - room) as u64, "further rank", "further ranks");
        lines.push(Line::styled(format!("{more}: stalled, or without device memory"), red));
    }
    let left = inner.saturating_sub(lines.len());
    let events = view.events.iter().skip(view.events.len().saturating_sub(left));
    lines.extend(events.map(|event| Line::raw(phrases::event(event))));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let ranks = view.now.ranks.len();
    let text = format!(
        "q end  ↑↓ rank  m metric  s {}  ? keys   {}",
        view.order.word(),
        counted(ranks as u64, "file", "files")
    );
    frame.render_widget(Paragraph::new(Line::styled(text, faint())), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::raw(format!(" {key:<10} {what}"))).collect();
    let width = area.width.min(66);
    let height = area.height.min(KEYS.len() as u16 + 2);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let inner = Rect { x, y, width, height };
    frame.render_widget(Clear, inner);
    let block = Block::new().borders(Borders::ALL).title(" keys ");
    frame.render_widget(Paragraph::new(lines).block(block), inner);
}
