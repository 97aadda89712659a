//! Draws a roofline plot. It shows the operations per second that operators reach, over their
//! operations per byte, below the limits of the device.

use std::fmt::Write;
use std::ops::RangeInclusive;

use tprof_facts::markup::escape;

use super::content::RooflinePoint;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
/// Space for the axis labels.
const LEFT: f64 = 62.0;
const BELOW: f64 = 38.0;
const ABOVE: f64 = 22.0;
const RIGHT: f64 = 24.0;
/// Height of a label.
const LABEL: f64 = 15.0;
/// Radius of the point with the most time. `SMALLEST` is the radius of the smallest point.
const LARGEST: f64 = 20.0;
const SMALLEST: f64 = 2.5;

/// Limits of a device.
pub(super) struct Roofs<'a> {
    /// Bytes per second.
    pub memory: Option<f64>,
    /// Operations per second, by name.
    pub roofs: &'a [(String, f64)],
}

/// Ranges of the axes, as powers of ten.
struct Axes {
    x: [i32; 2],
    y: [i32; 2],
}

impl Axes {
    fn of(roofs: &Roofs<'_>, points: &[RooflinePoint]) -> Option<Axes> {
        let intensities = points.iter().map(|point| point.intensity);
        let rates = points.iter().map(|point| point.flops_per_s);
        let ridges = roofs.roofs.iter().filter_map(|(_, roof)| Some(roof / roofs.memory?));
        let tops = roofs.roofs.iter().map(|(_, roof)| *roof);
        Some(Axes {
            x: powers(intensities.chain(ridges.map(|ridge| ridge * 4.0)))?,
            y: powers(rates.chain(tops.map(|top| top * 1.2)))?,
        })
    }

    fn x(&self, intensity: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * along(intensity, &self.x)
    }

    fn y(&self, rate: f64) -> f64 {
        ABOVE + (HEIGHT - ABOVE - BELOW) * (1.0 - along(rate, &self.y))
    }
}

fn along(value: f64, [from, to]: &[i32; 2]) -> f64 {
    (value.log10() - f64::from(*from)) / f64::from(to - from)
}

/// Returns the range between two powers of ten that contains all values.
fn powers(values: impl Iterator<Item = f64>) -> Option<[i32; 2]> {
    let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
    let (least, most) = logs.fold((f64::MAX, f64::MIN), |(a, b), log| (a.min(log), b.max(log)));
    let (from, to) = (least.floor() as i32, most.ceil() as i32);
    (least <= most).then(|| [from, to.max(from + 1)])
}

/// Draws the plot. Writes nothing if there is no point.
pub(super) fn draw(
    out: &mut String,
    title: &str,
    roofs: &Roofs<'_>,
    classes: &[(String, String)],
    points: &[RooflinePoint],
) {
    let drawn = |point: &&RooflinePoint| {
        [point.intensity, point.flops_per_s].iter().all(|n| n.is_finite() && *n > 0.0)
    };
    let points: Vec<RooflinePoint> = points.iter().filter(drawn).cloned().collect();
    let Some(axes) = Axes::of(roofs, &points).filter(|_| !points.is_empty()) else { return };
    *out += "<div class=\"key\">";
    for (class, name) in classes {
        let _ = write!(out, "<span><i class=\"{}\"></i>{}</span>", escape(class), escape(name));
    }
    *out += "</div>";
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(title)
    );
    grid(out, &axes);
    let most = points.iter().map(|point| point.share).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    lines(out, &axes, roofs);
    for point in &points {
        let radius = (LARGEST * (point.share.max(0.0) / most).sqrt()).max(SMALLEST);
        let circle = format!(
            "<circle class=\"point {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\"><title>{}</title></circle>",
            escape(&point.class),
            axes.x(point.intensity),
            axes.y(point.flops_per_s),
            escape(&point.title),
        );
        let _ = match point.href.is_empty() {
            true => write!(out, "{circle}"),
            false => write!(out, "<a href=\"{}\">{circle}</a>", escape(&point.href)),
        };
    }
    *out += "</svg>";
}

fn grid(out: &mut String, axes: &Axes) {
    let (bottom, right) = (HEIGHT - BELOW, WIDTH - RIGHT);
    for power in each(&axes.x) {
        let x = axes.x(10_f64.powi(power));
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {ABOVE}V{bottom}\"/><text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            plain(power),
        );
    }
    for power in each(&axes.y) {
        let y = axes.y(10_f64.powi(power));
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 4.0,
            y + 4.0,
            rate(10_f64.powi(power)),
        );
    }
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">operations for each byte</text><text class=\"axis\" x=\"4\" y=\"10\">operations a second</text>",
        HEIGHT - 4.0,
    );
}

/// Returns the powers of ten at which grid lines are drawn. In a wide range, only every Nth power
/// has a line.
fn each(range: &[i32; 2]) -> impl Iterator<Item = i32> {
    let all: RangeInclusive<i32> = range[0]..=range[1];
    let every = ((range[1] - range[0]) / 12 + 1) as usize;
    all.step_by(every)
}

fn plain(power: i32) -> String {
    match power {
        0..=4 => 10_i64.pow(power as u32).to_string(),
        -4..=-1 => format!("{:.*}", -power as usize, 10_f64.powi(power)),
        _ => format!("1e{power}"),
    }
}

fn rate(value: f64) -> String {
    let units = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(unit, _)| value >= *unit * 0.999) {
        Some((unit, name)) => format!("{:.0} {name}", value / unit),
        None => format!("{value:.0}"),
    }
}

/// Draws the limits of memory and of each data type. If the memory bandwidth is unknown, the slope
/// is left out.
fn lines(out: &mut String, axes: &Axes, roofs: &Roofs<'_>) {
    let left = 10_f64.powi(axes.x[0]);
    let right = 10_f64.powi(axes.x[1]);
    let bottom = 10_f64.powi(axes.y[0]);
    let mut roofs_by_height: Vec<&(String, f64)> = roofs.roofs.iter().collect();
    roofs_by_height.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut last_label = f64::MIN;
    for (name, roof) in roofs_by_height {
        let y = axes.y(*roof);
        let end = axes.x(right);
        let _ = match roofs.memory {
            Some(memory) => {
                // Point where the slope enters the plot.
                let from = left.max(bottom / memory);
                write!(
                    out,
                    "<path class=\"roof\" d=\"M{:.1} {:.1}L{:.1} {y:.1}H{end:.1}\"/>",
                    axes.x(from),
                    axes.y(memory * from),
                    axes.x(roof / memory).max(axes.x(from)),
                )
            }
            None => write!(out, "<path class=\"roof\" d=\"M{LEFT} {y:.1}H{end:.1}\"/>"),
        };
        // The label is above its line. If the label of a near roof leaves no room there, it is
        // below that label.
        let label = match y - 4.0 >= last_label + LABEL {
            true => y - 4.0,
            false => (y + 12.0).max(last_label + LABEL),
        };
        let _ = write!(
            out,
            "<text class=\"of-roof\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            end - 4.0,
            label,
            escape(name),
        );
        last_label = label;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(intensity: f64, flops_per_s: f64) -> RooflinePoint {
        RooflinePoint { intensity, flops_per_s, share: 0.25, ..RooflinePoint::default() }
    }

    #[test]
    fn axes_contain_all_points_and_ridges() {
        let roofs = [("fp32".to_owned(), 1e13)];
        let roofs = Roofs { memory: Some(1e12), roofs: &roofs };
        let axes = Axes::of(&roofs, &[point(0.3, 2e9), point(5.0, 9e12)]).unwrap();
        assert_eq!((axes.x, axes.y), ([-1, 2], [9, 14]));
        assert_eq!(axes.x(0.1), LEFT);
        assert_eq!(axes.y(1e9), HEIGHT - BELOW);
    }

    #[test]
    fn points_without_a_logarithm_are_not_drawn() {
        let mut out = String::new();
        let roofs = Roofs { memory: None, roofs: &[] };
        draw(&mut out, "t", &roofs, &[], &[point(0.0, 1e9), point(1.0, f64::NAN)]);
        assert_eq!(out, "");
        let mut linked = point(1.0, 1e9);
        linked.title = "a <b>".to_owned();
        linked.href = "timeline.html#from=1&to=2".to_owned();
        draw(&mut out, "t", &roofs, &[], &[point(0.0, 1e9), linked]);
        assert_eq!(out.matches("<circle").count(), 1);
        assert!(
            out.contains("a &lt;b&gt;") && out.contains("href=\"timeline.html#from=1&amp;to=2\"")
        );
        assert!(!out.contains("class=\"roof\"") && !out.contains("NaN"), "{out}");
    }

    #[test]
    fn labels_of_near_roofs_lie_below_each_other() {
        let mut out = String::new();
        let roofs = [("fp64".to_owned(), 9.7e12), ("fp32".to_owned(), 19.5e12)];
        let roofs = Roofs { memory: Some(1e12), roofs: &roofs };
        draw(&mut out, "t", &roofs, &[], &[point(10.0, 1e12)]);
        let labels = out.split("class=\"of-roof\"").skip(1);
        let heights: Vec<f64> = labels
            .map(|label| label.split("y=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|height| height.parse().unwrap())
            .collect();
        assert!(heights[1] - heights[0] >= LABEL - 0.1, "{heights:?}");
    }

    #[test]
    fn a_roof_rises_with_memory_and_is_flat_beyond_its_ridge() {
        let mut out = String::new();
        let roofs = [("bf16".to_owned(), 1e15)];
        let roofs = Roofs { memory: Some(1e12), roofs: &roofs };
        draw(&mut out, "t", &roofs, &[], &[point(10.0, 1e12)]);
        let ridge = Axes::of(&roofs, &[point(10.0, 1e12)]).unwrap();
        let corner = format!("L{:.1} {:.1}H", ridge.x(1e3), ridge.y(1e15));
        assert!(out.contains(&corner), "{out}");
    }
}
