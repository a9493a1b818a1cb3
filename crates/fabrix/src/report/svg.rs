//! Horizontal charts as inline SVG, written by hand.
//!
//! Lengths across are percentages of whatever width the page gives, lengths down and type are pixels: a chart
//! is as wide as its column, and its words stay readable on a telephone. Colours are classes; the page's style
//! sheet gives them, so one drawing serves light and dark.

use std::fmt::Write;

use super::number::grouped;

/// A chart: an axis and groups of lines.
pub(super) struct Chart {
    /// What it shows, for those who do not see it.
    pub(super) label: String,
    pub(super) scale: Scale,
    /// A value that everything is to be compared with.
    pub(super) rule: Option<f64>,
    pub(super) groups: Vec<Group>,
}

/// Lines under one name.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
}

/// One line of a group.
pub(super) struct Line {
    pub(super) marks: Vec<Mark>,
    /// Stands at the end of the line.
    pub(super) label: String,
}

/// Something drawn on a line, in the values of the scale.
pub(super) enum Mark {
    /// A bar from one value to another.
    Bar {
        class: &'static str,
        from: f64,
        to: f64,
    },
    /// A thin stroke from a dot to a tick.
    Span {
        class: &'static str,
        dot: f64,
        tick: f64,
    },
}

/// How values become places.
pub(super) enum Scale {
    /// From zero; the axis names its ticks with a suffix.
    Linear {
        end: f64,
        ticks: Vec<f64>,
        suffix: &'static str,
    },
    /// Decades.
    Log {
        begin: f64,
        end: f64,
        ticks: Vec<f64>,
    },
}

impl Scale {
    /// From zero to a little more than the greatest value, with room for the labels.
    pub(super) fn linear(greatest: f64, suffix: &'static str) -> Self {
        let greatest = if greatest.is_finite() && greatest > 0.0 {
            greatest
        } else {
            1.0
        };
        let end = greatest / PLOT_PART;
        let step = step(greatest);
        let ticks = (0..=TICKS_MAX)
            .map(|tick| f64::from(tick) * step)
            .take_while(|value| *value <= greatest * 1.02);
        Self::Linear {
            end,
            ticks: ticks.collect(),
            suffix,
        }
    }

    /// Decades around the values, with room for the labels.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let least = positive.clone().fold(f64::INFINITY, f64::min);
        let greatest = positive.fold(0.0, f64::max);
        let (least, greatest) = if least <= greatest {
            (least, greatest)
        } else {
            (1.0, 10.0)
        };
        let (first, last) = (least.log10().floor(), greatest.log10().ceil());
        let decades = (last - first).max(1.0);
        let ticks = (0..=TICKS_MAX)
            .map(f64::from)
            .take_while(|tick| *tick <= decades);
        Self::Log {
            begin: 10f64.powf(first),
            end: 10f64.powf(first + decades / PLOT_PART),
            ticks: ticks.map(|tick| 10f64.powf(first + tick)).collect(),
        }
    }

    /// The place of a value as a percentage of the width, two decimals.
    fn place(&self, value: f64) -> f64 {
        let part = match self {
            Self::Linear { end, .. } => value / end,
            Self::Log { begin, end, .. } => (value.max(*begin) / begin).ln() / (end / begin).ln(),
        };
        if part.is_finite() {
            (part * 1e4).round().clamp(0.0, 1e4) / 1e2
        } else {
            0.0
        }
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let (Self::Linear { ticks, .. } | Self::Log { ticks, .. }) = self;
        ticks
            .iter()
            .map(|value| (self.place(*value), self.tick_text(*value)))
    }

    fn tick_text(&self, value: f64) -> String {
        match self {
            Self::Linear { suffix, .. } if value >= 1e6 => {
                format!("{}M{suffix}", trimmed(value / 1e6))
            }
            Self::Linear { suffix, .. } if value >= 1e4 => {
                format!("{}k{suffix}", trimmed(value / 1e3))
            }
            Self::Linear { suffix, .. } if value >= 1e3 => format!("{}{suffix}", grouped(value)),
            Self::Linear { suffix, .. } => format!("{}{suffix}", trimmed(value)),
            Self::Log { .. } if value >= 1.0 => grouped(value),
            Self::Log { .. } => trimmed(value),
        }
    }
}

/// A round distance of ticks: 1, 2 or 5 times a power of ten, four to eight of them.
fn step(greatest: f64) -> f64 {
    let power = 10f64.powf((greatest / 5.0).log10().floor());
    let times = greatest / 5.0 / power;
    let round = if times < 1.5 {
        1.0
    } else if times < 3.5 {
        2.0
    } else {
        5.0
    };
    // Five times a power of ten below 7.5, otherwise the next power.
    if times < 7.5 {
        round * power
    } else {
        10.0 * power
    }
}

/// At most three decimals, none that is zero.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Draws a chart.
pub(super) fn draw(chart: &Chart) -> String {
    let height = chart.groups.iter().map(group_height).sum::<u32>() + AXIS_HEIGHT;
    let mut svg = format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" width=\"100%\" height=\"{height}\">\n",
        escape(&chart.label)
    );
    axis(&mut svg, &chart.scale, height);
    if let Some(rule) = chart.rule {
        upright(
            &mut svg,
            "rule",
            chart.scale.place(rule),
            height - AXIS_HEIGHT,
        );
    }
    let mut top = 0;
    for group in &chart.groups {
        draw_group(&mut svg, &chart.scale, group, top);
        top += group_height(group);
    }
    svg += "</svg>\n";
    svg
}

fn axis(svg: &mut String, scale: &Scale, height: u32) {
    let bottom = height - AXIS_HEIGHT;
    for (at, (place, text)) in scale.ticks().enumerate() {
        let anchor = if at == 0 { "start" } else { "middle" };
        upright(svg, "grid", place, bottom);
        put(
            svg,
            format_args!(
                "<text class=\"tick\" x=\"{place}%\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>\n",
                height - 6,
                escape(&text)
            ),
        );
    }
}

/// A line from the top of the chart to its axis.
fn upright(svg: &mut String, class: &str, place: f64, bottom: u32) {
    put(
        svg,
        format_args!(
            "<line class=\"{class}\" x1=\"{place}%\" x2=\"{place}%\" y1=\"0\" y2=\"{bottom}\" />\n"
        ),
    );
}

fn draw_group(svg: &mut String, scale: &Scale, group: &Group, top: u32) {
    let name = escape(&group.name);
    put(
        svg,
        format_args!(
            "<text class=\"name\" x=\"0\" y=\"{}\">{name}</text>\n",
            top + 15
        ),
    );
    for (line, y) in group
        .lines
        .iter()
        .zip((top + NAME_HEIGHT..).step_by(LINE_HEIGHT as usize))
    {
        let mut end: f64 = 0.0;
        for mark in &line.marks {
            end = end.max(draw_mark(svg, scale, mark, y));
        }
        let label = escape(&line.label);
        put(
            svg,
            format_args!(
                "<text class=\"value\" x=\"{end}%\" dx=\"8\" y=\"{}\">{label}</text>\n",
                y + BAR_HEIGHT - 1
            ),
        );
    }
}

/// Draws a mark and gives the place where it ends.
fn draw_mark(svg: &mut String, scale: &Scale, mark: &Mark, y: u32) -> f64 {
    match mark {
        Mark::Bar { class, from, to } => {
            let (from, to) = (scale.place(*from), scale.place(*to));
            let width = ((to - from).max(0.0) * 100.0).round() / 100.0;
            put(
                svg,
                format_args!(
                    "<rect class=\"{class}\" x=\"{from}%\" y=\"{y}\" width=\"{width}%\" \
                     height=\"{BAR_HEIGHT}\" rx=\"2\" />\n"
                ),
            );
            to
        }
        Mark::Span { class, dot, tick } => {
            let (dot, tick) = (scale.place(*dot), scale.place(*tick));
            let (left, right) = (dot.min(tick), dot.max(tick));
            let (middle, bottom) = (y + BAR_HEIGHT / 2, y + BAR_HEIGHT);
            put(
                svg,
                format_args!(
                    "<line class=\"{class} span\" x1=\"{left}%\" x2=\"{right}%\" y1=\"{middle}\" y2=\"{middle}\" />\n\
                     <line class=\"{class} end\" x1=\"{tick}%\" x2=\"{tick}%\" y1=\"{y}\" y2=\"{bottom}\" />\n\
                     <circle class=\"{class}\" cx=\"{dot}%\" cy=\"{middle}\" r=\"4.5\" />\n"
                ),
            );
            right
        }
    }
}

fn group_height(group: &Group) -> u32 {
    let lines = u32::try_from(group.lines.len()).expect("a group has a few lines");
    NAME_HEIGHT + lines * LINE_HEIGHT + GAP_HEIGHT
}

fn put(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("a String takes everything");
}

/// Text as it may stand between tags and in attributes. Control characters, which no page may have, vanish.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            '\n' | '\t' => safe.push(character),
            control if control.is_control() => {}
            other => safe.push(other),
        }
    }
    safe
}

/// The part of the width that bars may take; the rest is for the labels behind them.
const PLOT_PART: f64 = 0.8;
const TICKS_MAX: u32 = 12;
const NAME_HEIGHT: u32 = 21;
const BAR_HEIGHT: u32 = 11;
const LINE_HEIGHT: u32 = 15;
const GAP_HEIGHT: u32 = 9;
const AXIS_HEIGHT: u32 = 26;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for greatest in [0.7, 1.0, 3.2, 97.0, 458_958.0, 8_226.06, 1e9] {
            let Scale::Linear { ticks, end, .. } = Scale::linear(greatest, "") else {
                panic!("it is linear")
            };
            assert!((4..=9).contains(&ticks.len()), "{greatest}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick < end));
        }
    }

    #[test]
    fn decades_surround_the_values() {
        let Scale::Log { begin, ticks, .. } = Scale::log([0.6, 52.0, 140.0].into_iter()) else {
            panic!("it is log")
        };
        assert!((begin - 0.1).abs() < 1e-12);
        assert_eq!(ticks.len(), 5, "0.1 to 1000");
    }

    #[test]
    fn values_that_are_no_numbers_draw_nothing_strange() {
        for scale in [
            Scale::linear(f64::NAN, ""),
            Scale::linear(0.0, ""),
            Scale::log(std::iter::empty()),
        ] {
            for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
                assert!((0.0..=100.0).contains(&scale.place(value)));
            }
        }
    }

    #[test]
    fn no_text_can_become_a_tag() {
        assert_eq!(
            escape("<a b=\"c\">&'\u{1}"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#39;"
        );
    }
}
