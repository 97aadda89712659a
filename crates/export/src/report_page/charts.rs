//! Draws plots as SVG and HTML. They need no script, and look the same in print. Each plot also has
//! its content as text, for people who cannot see it.

use std::fmt::Write;

use tprof_facts::markup::escape;

use super::content::Chart;
use super::roofline;

const WIDTH: f64 = 900.0;
const CURVE_HEIGHT: f64 = 120.0;
const COLUMN_HEIGHT: f64 = 150.0;

pub(super) fn chart(out: &mut String, chart: &Chart) {
    *out += "<figure>";
    match chart {
        Chart::Stacks { title, parts, rows } => stacks(out, title, parts, rows),
        Chart::Columns { title, columns } => self::columns(out, title, columns),
        Chart::Curves { title, ends, curves } => self::curves(out, title, ends, curves),
        Chart::Roofline { title, memory, roofs, classes, points } => {
            caption(out, title);
            roofline::draw(
                out,
                title,
                &roofline::Roofs { memory: *memory, roofs },
                classes,
                points,
            );
        }
    }
    *out += "</figure>";
}

fn caption(out: &mut String, title: &str) {
    let _ = write!(out, "<figcaption>{}</figcaption>", escape(title));
}

/// Draws HTML bars. Each part is as wide as its share, and has a label if the label fits.
fn stacks(out: &mut String, title: &str, parts: &[(String, String)], rows: &[(String, Vec<f64>)]) {
    caption(out, title);
    *out += "<div class=\"key\">";
    for (class, part) in parts {
        let _ = write!(out, "<span><i class=\"{}\"></i>{}</span>", escape(class), escape(part));
    }
    *out += "</div><div class=\"stacks\">";
    for (label, shares) in rows {
        let _ = write!(out, "<span>{}</span><div>", escape(label));
        for (at, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let percent = share * 100.0;
            let (class, name) = parts.get(at).map_or(("", ""), |(class, name)| (class, name));
            let text = if percent >= 6.0 { format!("{percent:.0} %") } else { String::new() };
            let _ = write!(
                out,
                "<b class=\"{}\" style=\"width:{percent:.2}%\" title=\"{} {percent:.1} %\">{text}</b>",
                escape(class),
                escape(name),
            );
        }
        *out += "</div>";
    }
    *out += "</div>";
}

fn columns(out: &mut String, title: &str, columns: &[(String, f64, String, bool)]) {
    caption(out, title);
    let most = columns.iter().map(|column| column.1).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let left = 8.0;
    let wide = ((WIDTH - left) / columns.len() as f64).min(90.0);
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        COLUMN_HEIGHT + 36.0,
        escape(title),
    );
    for (at, (label, value, text, stands_out)) in columns.iter().enumerate() {
        let (x, tall) = (left + wide * at as f64, COLUMN_HEIGHT * value / most);
        let class = if *stands_out { "column out" } else { "column" };
        let (label, text) = (escape(label), escape(text));
        let gap = (wide * 0.15).min(6.0);
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{label}: {text}</title></rect>",
            COLUMN_HEIGHT + 16.0 - tall,
            wide - gap,
        );
        let middle = x + (wide - gap) / 2.0;
        if wide >= 46.0 {
            let y = COLUMN_HEIGHT + 12.0 - tall;
            let _ = write!(
                out,
                "<text x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
            );
        }
        // Draw only every Nth label, so that labels do not overlap.
        let every = (40.0 / wide).ceil().max(1.0) as usize;
        if at % every == 0 {
            let y = COLUMN_HEIGHT + 32.0;
            let _ = write!(
                out,
                "<text class=\"axis\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"
            );
        }
    }
    *out += "</svg>";
}

fn curves(
    out: &mut String,
    title: &str,
    ends: &[String; 2],
    curves: &[(String, String, Vec<Option<f64>>)],
) {
    caption(out, title);
    let most = curves.iter().flat_map(|curve| &curve.2).flatten().copied().fold(0.0, f64::max);
    *out += "<div class=\"key\">";
    for (at, (name, peak, _)) in curves.iter().enumerate() {
        let _ = write!(
            out,
            "<span><i class=\"line{at}\"></i>{}, peak {}</span>",
            escape(name),
            escape(peak)
        );
    }
    *out += "</div>";
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\"><path class=\"base\" d=\"M0 {CURVE_HEIGHT}H{WIDTH}\"/>",
        CURVE_HEIGHT + 18.0,
        escape(title),
    );
    for (at, (_, _, values)) in curves.iter().enumerate() {
        let path = path(values, most);
        let _ = write!(out, "<path class=\"curve line{at}\" d=\"{path}\"/>");
    }
    let y = CURVE_HEIGHT + 14.0;
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"0\" y=\"{y}\">{}</text><text class=\"axis\" x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{}</text></svg>",
        escape(&ends[0]),
        escape(&ends[1]),
    );
}

/// Returns the path of a step curve, with gaps where values are unknown.
fn path(values: &[Option<f64>], most: f64) -> String {
    let step = WIDTH / values.len().max(1) as f64;
    let mut path = String::new();
    let mut drawing = false;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else {
            drawing = false;
            continue;
        };
        let (x, y) =
            (step * at as f64, CURVE_HEIGHT - (CURVE_HEIGHT - 6.0) * value / most.max(1e-9));
        let _ = match drawing {
            true => write!(path, "V{y:.1}H{:.1}", x + step),
            false => write!(path, "M{x:.1} {y:.1}H{:.1}", x + step),
        };
        drawing = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_gaps_where_values_are_unknown() {
        let path = path(&[Some(1.0), Some(2.0), None, Some(2.0)], 2.0);
        assert_eq!(path, "M0.0 63.0H225.0V6.0H450.0M675.0 6.0H900.0");
    }

    #[test]
    fn a_bar_has_a_part_for_each_share_above_zero() {
        let mut out = String::new();
        let rows = [("rank 0".to_owned(), vec![0.25, 0.0, 0.75])];
        let parts = ["a", "b", "c"].map(|name| (format!("of-{name}"), name.to_owned()));
        stacks(&mut out, "t", &parts, &rows);
        assert!(out.contains("width:25.00%") && out.contains("width:75.00%"), "{out}");
        assert_eq!(out.matches("<b ").count(), 2);
        assert!(out.contains("<b class=\"of-c\""), "{out}");
    }
}
