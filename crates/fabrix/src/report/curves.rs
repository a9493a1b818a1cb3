//! Line charts as SVG: a value against depth, latency against percentile, or rate against time.
//!
//! Horizontal positions are percentages of the available width. The lines are in a nested drawing
//! that stretches with the width and keeps their thickness. The values of the vertical axis have a
//! margin that is wide enough on a phone.

use super::number::{self, label_of, short};
use super::scale::step;
use super::sheet::{Axis, Curve};
use super::svg::{begin, class, escape, nothing};

/// Draws a line chart.
pub(super) fn draw(label: &str, across: &Axis, up: &Axis, lines: &[Curve]) -> String {
    let points = || {
        lines
            .iter()
            .flat_map(|line| &line.points)
            .filter(|point| fits(point, across, up))
    };
    let x = Span::new(across, points().map(|point| point.0)).thinned(TICKS_ACROSS);
    let mut y = Span::new(up, points().map(|point| point.1));
    if up.log {
        y.ticks = rounds(y.from, y.to);
    }
    if points().next().is_none() {
        return nothing(label);
    }
    let mut svg = begin(label, HEIGHT);
    rules(&mut svg, across, up, (&x, &y));
    for (index, line) in lines.iter().enumerate() {
        let places: Vec<(f64, f64)> = line
            .points
            .iter()
            .filter(|point| fits(point, across, up))
            .map(|(at, value)| (over(x.place(*at)), y.place(*value)))
            .collect();
        curve(&mut svg, class(index), &places);
    }
    // Marks are drawn last, so that no line crosses a name.
    for (index, line) in lines.iter().enumerate() {
        if let Some((at, name)) = &line.mark
            && let Some(point) = line.points.get(*at).filter(|point| fits(point, across, up))
        {
            mark(
                &mut svg,
                class(index),
                (over(x.place(point.0)), y.place(point.1)),
                name,
            );
        }
    }
    let names = [
        (&across.name, HEIGHT - 4, "100%", "end"),
        (&up.name, 12, "0", "start"),
    ];
    for (name, y, x, anchor) in names {
        svg += &format!(
            "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>\n",
            escape(name)
        );
    }
    svg += "</svg>\n";
    svg
}

/// Whether a point can be drawn on these axes.
fn fits(point: &(f64, f64), across: &Axis, up: &Axis) -> bool {
    let on = |value: f64, axis: &Axis| value.is_finite() && (!axis.log || value > 0.0);
    on(point.0, across) && on(point.1, up)
}

/// Range and ticks of an axis.
struct Span {
    log: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Span {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let (least, greatest) = values
            .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
                (least.min(value), greatest.max(value))
            });
        if !(least.is_finite() && greatest > 0.0) {
            return Self {
                log: false,
                from: 0.0,
                to: 1.0,
                ticks: Vec::new(),
            };
        }
        if axis.log {
            Self::log(least, greatest)
        } else {
            Self::linear(greatest)
        }
    }

    /// Reduces the ticks to at most `most`, evenly.
    fn thinned(mut self, most: usize) -> Self {
        let step = self.ticks.len().div_ceil(most).max(1);
        self.ticks = self.ticks.into_iter().step_by(step).collect();
        self
    }

    fn linear(greatest: f64) -> Self {
        let step = step(greatest);
        let ticks: Vec<f64> = (0..=5)
            .map(|tick| f64::from(tick) * step)
            .take_while(|tick| *tick <= greatest * 1.001)
            .collect();
        Self {
            log: false,
            from: 0.0,
            to: greatest * 1.05,
            ticks,
        }
    }

    /// A logarithmic axis: powers of two for few decades, otherwise powers of ten.
    fn log(least: f64, greatest: f64) -> Self {
        let base: f64 = if greatest / least < 1100.0 { 2.0 } else { 10.0 };
        let (first, last) = (
            (least.ln() / base.ln() - 1e-9).ceil(),
            (greatest.ln() / base.ln() + 1e-9).floor(),
        );
        let ticks = (0..=20)
            .map(|tick| first + f64::from(tick))
            .take_while(|power| *power <= last);
        let (from, to) = if least < greatest {
            (least, greatest)
        } else {
            (least / base, greatest * base)
        };
        Self {
            log: true,
            from,
            to,
            ticks: ticks.map(|power| base.powf(power)).collect(),
        }
    }

    /// Position of a value as a fraction of the axis.
    fn place(&self, value: f64) -> f64 {
        let part = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if part.is_finite() {
            (part.clamp(0.0, 1.0) * 1e4).round() / 1e4
        } else {
            0.0
        }
    }
}

/// Round values in a range: 1, 2 and 5 of each decade if there are few, otherwise powers of ten. A
/// range without two of them has its ends.
fn rounds(from: f64, to: f64) -> Vec<f64> {
    let times: &[f64] = if to / from < 3000.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let first = (from.log10() - 1.0).floor();
    let decades = (0..=24).map(|decade| 10_f64.powf(first + f64::from(decade)));
    let ticks: Vec<f64> = decades
        .flat_map(|decade| times.iter().map(move |times| times * decade))
        .filter(|value| (from * 0.999..=to * 1.001).contains(value))
        .collect();
    match ticks.len() {
        0 | 1 => vec![from, to],
        _ => ticks,
    }
}

fn rules(svg: &mut String, across: &Axis, up: &Axis, (x, y): (&Span, &Span)) {
    for tick in &y.ticks {
        let at = down(y.place(*tick));
        *svg += &format!(
            "<line class=\"grid\" x1=\"{MARGIN}%\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\" />\n\
                 <text class=\"tick\" x=\"{:.1}%\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            MARGIN - 1.5,
            at + 4.0,
            tick_text(*tick, up.time)
        );
    }
    let named = |value: f64| (value, tick_text(value, across.time));
    let ticks: Vec<(f64, String)> = if across.named.is_empty() {
        x.ticks.iter().copied().map(named).collect()
    } else {
        let mut last = f64::NEG_INFINITY;
        let shown = |(value, _): &&(f64, String)| {
            let place = over(x.place(*value));
            let room = place - last >= NAME_APART && (x.from..=x.to * 1.001).contains(value);
            if room {
                last = place;
            }
            room
        };
        across.named.iter().filter(shown).cloned().collect()
    };
    for (value, text) in ticks {
        let place = over(x.place(value));
        *svg += &format!(
            "<line class=\"grid\" x1=\"{place:.2}%\" x2=\"{place:.2}%\" y1=\"{TOP}\" y2=\"{BOTTOM}\" />\n\
                 <text class=\"tick\" x=\"{place:.2}%\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            BOTTOM + 15,
            escape(&text)
        );
    }
}

fn curve(svg: &mut String, class: &str, places: &[(f64, f64)]) {
    let corners: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.2},{:.2}", (1.0 - y) * 100.0))
        .collect();
    *svg += &format!(
        "<svg x=\"0\" y=\"{TOP}\" width=\"100%\" height=\"{}\" viewBox=\"0 0 100 100\" \
             preserveAspectRatio=\"none\" \
         overflow=\"visible\">\n<polyline class=\"curve {class}\" points=\"{}\" \
         vector-effect=\"non-scaling-stroke\" />\n\
         </svg>\n",
        BOTTOM - TOP,
        corners.join(" ")
    );
    if places.len() > DOTS_MAX {
        return;
    }
    for (x, y) in places {
        *svg += &format!(
            "<circle class=\"{class}\" cx=\"{x:.2}%\" cy=\"{:.1}\" r=\"3\" />\n",
            down(*y)
        );
    }
}

fn mark(svg: &mut String, class: &str, (x, y): (f64, f64), name: &str) {
    let at = down(y);
    // Beside the point, and away from the axis.
    let base = if y < 0.3 { at - 12.0 } else { at + 20.0 };
    let (anchor, move_by) = if x > 70.0 {
        ("end", -10)
    } else {
        ("start", 10)
    };
    *svg += &format!(
        "<circle class=\"ring {class}\" cx=\"{x:.2}%\" cy=\"{at:.1}\" r=\"7\" />\n\
         <text class=\"name marked\" x=\"{x:.2}%\" dx=\"{move_by}\" y=\"{base:.1}\" \
             text-anchor=\"{anchor}\">{}</text>\n",
        escape(name)
    );
}

/// Horizontal position of a fraction of the plot, in percent of the picture. Dots at the edges stay
/// inside.
fn over(part: f64) -> f64 {
    let begin = MARGIN + EDGE;
    begin + part * (100.0 - END - begin)
}

/// Vertical position in pixels from the top.
fn down(part: f64) -> f64 {
    f64::from(TOP) + (1.0 - part) * f64::from(BOTTOM - TOP)
}

fn tick_text(value: f64, time: bool) -> String {
    if time && value > 0.0 {
        return number::round_time(value * 1e3);
    }
    match value {
        value if value >= 1e9 => format!("{}G", trimmed(value / 1e9)),
        value if value >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        value if value >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        value if value >= 1.0 && value.fract() == 0.0 => label_of(value)
            .trim_end_matches(".00")
            .trim_end_matches(".0")
            .to_owned(),
        value if value > 0.0 && value < 0.01 => format!("{value:.0e}"),
        value => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = short(value);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

const HEIGHT: u32 = 300;
const TOP: u32 = 30;
const BOTTOM: u32 = 262;
/// Width of the vertical axis's values, in percent.
const MARGIN: f64 = 16.5;
/// Free space before the first point, in percent of the width.
const EDGE: f64 = 2.5;
/// Free space behind the last point, in percent of the width: half a tick's text on a phone.
const END: f64 = 6.5;
/// Largest number of values side by side on a phone.
const TICKS_ACROSS: usize = 6;
/// Smallest distance of names on the horizontal axis, in percent of the width, so that they do not
/// overlap on a phone.
const NAME_APART: f64 = 14.0;
/// Largest number of points drawn as dots. Longer lines have no dots.
const DOTS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for greatest in [0.7, 3.2, 97.0, 458_958.0] {
            let span = Span::linear(greatest);
            assert!(
                (3..=6).contains(&span.ticks.len()),
                "{greatest}: {:?}",
                span.ticks
            );
            assert!(span.ticks.iter().all(|tick| *tick <= span.to));
        }
        assert_eq!(
            Span::log(1.0, 128.0).ticks,
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
        );
    }

    #[test]
    fn names_below_do_not_touch_each_other() {
        let named = (0..9).map(|nines| (10_f64.powi(nines), format!("n{nines}")));
        let line = Curve {
            points: vec![(1.0, 1.0), (1e8, 2.0)],
            ..Curve::default()
        };
        let across = Axis::log("x").named(named.collect());
        let svg = draw("", &across, &Axis::linear("y"), &[line]);
        let shown = |nines: &i32| svg.contains(&format!(">n{nines}<"));
        let names: Vec<i32> = (0..9).filter(shown).collect();
        assert_eq!(names, [0, 2, 4, 6, 8]);
    }

    #[test]
    fn latencies_have_round_ticks() {
        assert_eq!(rounds(64.0, 640.0), [100.0, 200.0, 500.0]);
        assert_eq!(rounds(2.6, 4.2), [2.6, 4.2]);
        assert_eq!(rounds(3.0, 40_000.0).len(), 4);
        assert!(rounds(f64::MIN_POSITIVE, f64::MAX).len() <= 25);
    }

    #[test]
    fn ticks_read_as_people_write_them() {
        let times = [0.5, 50.0, 2_000.0, 1e6].map(|value| tick_text(value, true));
        assert_eq!(times, ["500 ns", "50 µs", "2 ms", "1 s"]);
        let texts = [0.0, 0.001, 0.5, 8.0, 2500.0, 64_000.0, 2_500_000.0, 4e9]
            .map(|value| tick_text(value, false));
        assert_eq!(
            texts,
            ["0", "1e-3", "0.5", "8", "2,500", "64k", "2.5M", "4G"]
        );
    }
}
