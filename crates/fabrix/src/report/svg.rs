//! Horizontal bar charts as inline SVG.
//!
//! Widths are percentages of the page's column, and heights and fonts are in pixels, so a chart
//! fills its column and stays readable on a phone. Colours are CSS classes of the page, so the same
//! drawing serves light and dark mode.

use super::scale::Scale;

/// CSS classes of the series: eight colours, and the same colours in a second style.
const SERIES: [&str; 16] = [
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s0 again", "s1 again", "s2 again", "s3 again",
    "s4 again", "s5 again", "s6 again", "s7 again",
];

/// The class of a series. They repeat after sixteen.
pub(super) fn class(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// A chart: a scale and groups of lines.
pub(super) struct Chart {
    /// Description for screen readers.
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Reference value for comparison.
    pub(super) rule: Option<f64>,
    pub(super) groups: Vec<Group>,
}

/// Lines with a common name.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
}

/// One line of a group.
pub(super) struct Line {
    pub(super) marks: Vec<Mark>,
    /// Text at the end of the line.
    pub(super) label: String,
}

impl Line {
    /// A line with one bar from zero.
    pub(super) fn bar(class: &'static str, to: f64, label: String) -> Self {
        let from = 0.0;
        let marks = vec![Mark::Bar { class, from, to }];
        Self { marks, label }
    }
}

/// A mark on a line, in values of the scale.
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

/// Draws a chart.
pub(super) fn draw(chart: &Chart) -> String {
    let height = chart.groups.iter().map(group_height).sum::<u32>() + AXIS_HEIGHT;
    if chart.groups.iter().all(|group| group.lines.is_empty()) {
        return nothing(&chart.label);
    }
    let mut svg = begin(&chart.label, height);
    let plot = Plot::new(chart);
    svg += &format!("<g transform=\"translate({INDENT} 0)\">\n");
    axis(&mut svg, &plot, height);
    if let Some(rule) = chart.rule {
        upright(&mut svg, "rule", plot.place(rule), height - AXIS_HEIGHT);
    }
    let mut top = 0;
    for group in &chart.groups {
        draw_group(&mut svg, &plot, group, top);
        top += group_height(group);
    }
    svg += "</g>\n</svg>\n";
    svg
}

/// Opening tag of a drawing, with its description for screen readers and its height.
pub(super) fn begin(label: &str, height: u32) -> String {
    format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" width=\"100%\" height=\"{height}\">\n",
        escape(label)
    )
}

/// A drawing without values.
pub(super) fn nothing(label: &str) -> String {
    let empty = "<text class=\"empty\" x=\"0\" y=\"14\">nothing was measured</text>\n</svg>\n";
    begin(label, 24) + empty
}

/// A scale, and its fraction of the width. The rest is space for the longest label behind the
/// longest bar, also on a phone.
struct Plot<'a> {
    scale: &'a Scale,
    part: f64,
}

impl<'a> Plot<'a> {
    fn new(chart: &'a Chart) -> Self {
        let lines = chart.groups.iter().flat_map(|group| &group.lines);
        let longest = lines.map(|line| line.label.chars().count()).max();
        let labels = 10.0 + f64::from(INDENT) + LETTER * longest.unwrap_or(0) as f64;
        Self {
            scale: &chart.scale,
            part: (1.0 - labels / NARROW).clamp(0.4, 0.9),
        }
    }

    /// Position of a value in percent of the width, with two decimals.
    fn place(&self, value: f64) -> f64 {
        (self.scale.place(value) * self.part * 1e4).round() / 1e2
    }
}

fn axis(svg: &mut String, plot: &Plot<'_>, height: u32) {
    let bottom = height - AXIS_HEIGHT;
    for (value, text) in plot.scale.ticks() {
        let place = plot.place(value);
        upright(svg, "grid", place, bottom);
        *svg += &format!(
            "<text class=\"tick\" x=\"{place}%\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            height - 6,
            escape(&text)
        );
    }
}

/// A vertical line from the top of the chart to its axis.
fn upright(svg: &mut String, class: &str, place: f64, bottom: u32) {
    *svg += &format!(
        "<line class=\"{class}\" x1=\"{place}%\" x2=\"{place}%\" y1=\"0\" y2=\"{bottom}\" />\n"
    );
}

fn draw_group(svg: &mut String, plot: &Plot<'_>, group: &Group, top: u32) {
    for (name, y) in wrapped(&group.name, NAME_LETTERS)
        .iter()
        .zip((top + 15..).step_by(NAME_LINE))
    {
        *svg += &format!(
            "<text class=\"name\" x=\"-{INDENT}\" y=\"{y}\">{}</text>\n",
            escape(name)
        );
    }
    let top = top + more_lines(group);
    for (line, y) in group
        .lines
        .iter()
        .zip((top + NAME_HEIGHT..).step_by(LINE_HEIGHT as usize))
    {
        let mut end: f64 = 0.0;
        for mark in &line.marks {
            end = end.max(draw_mark(svg, plot, mark, y));
        }
        let label = escape(&line.label);
        *svg += &format!(
            "<text class=\"value\" x=\"{end}%\" dx=\"8\" y=\"{}\">{label}</text>\n",
            y + BAR_HEIGHT - 1
        );
    }
}

/// Draws a mark and returns its end position.
fn draw_mark(svg: &mut String, plot: &Plot<'_>, mark: &Mark, y: u32) -> f64 {
    match mark {
        Mark::Bar { class, from, to } => {
            let (from, to) = (plot.place(*from), plot.place(*to));
            let width = ((to - from).max(0.0) * 100.0).round() / 100.0;
            *svg += &format!(
                "<rect class=\"{class}\" x=\"{from}%\" y=\"{y}\" width=\"{width}%\" \
                     height=\"{BAR_HEIGHT}\" rx=\"2\" />\n"
            );
            to
        }
        Mark::Span { class, dot, tick } => {
            let (dot, tick) = (plot.place(*dot), plot.place(*tick));
            let (left, right) = (dot.min(tick), dot.max(tick));
            let (middle, bottom) = (y + BAR_HEIGHT / 2, y + BAR_HEIGHT);
            *svg += &format!(
                "<line class=\"{class} span\" x1=\"{left}%\" x2=\"{right}%\" y1=\"{middle}\" y2=\"{middle}\" />\n\
                     <line class=\"{class} end\" x1=\"{tick}%\" x2=\"{tick}%\" y1=\"{y}\" y2=\"{bottom}\" />\n\
                     <circle class=\"{class}\" cx=\"{dot}%\" cy=\"{middle}\" r=\"4.5\" />\n"
            );
            right
        }
    }
}

fn group_height(group: &Group) -> u32 {
    let lines = u32::try_from(group.lines.len()).expect("a group has a few lines");
    more_lines(group) + NAME_HEIGHT + lines * LINE_HEIGHT + GAP_HEIGHT
}

/// Height of a name's lines after the first.
fn more_lines(group: &Group) -> u32 {
    let lines = wrapped(&group.name, NAME_LETTERS).len() - 1;
    u32::try_from(lines * NAME_LINE).expect("a name has a few lines")
}

/// A name in lines of at most `most` characters, at least one. Lines end at spaces or behind the
/// separators of URIs where possible, and a name of more than three lines loses its middle.
fn wrapped(name: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in fitted(name, 3 * most).split_inclusive([' ', '/', ':', '-', ',']) {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(most) {
            let line = lines.last_mut().expect("there is always a line");
            let text: String = part.iter().collect();
            if line.chars().count() + text.trim_end().chars().count() > most {
                lines.push(text);
            } else {
                *line += &text;
            }
        }
    }
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

/// Escapes text for contents and attributes. Control characters, which XML forbids, are removed.
pub(crate) fn escape(text: &str) -> String {
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

/// Shortens a text to at most `most` characters by leaving out its middle.
pub(crate) fn fitted(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let (begin, end) = (most / 2, letters.len() - (most - most / 2 - 1));
    letters[..begin]
        .iter()
        .chain(&['…'])
        .chain(&letters[end..])
        .collect()
}

/// Width of a picture on a phone, and of a label's character, in pixels.
const NARROW: f64 = 288.0;
const LETTER: f64 = 7.4;
/// Number of a name's characters that fit on a phone.
const NAME_LETTERS: usize = 32;
const NAME_HEIGHT: u32 = 21;
/// Height of a further line of a name.
const NAME_LINE: usize = 16;
/// Indentation of the bars in pixels: half the text of the first tick.
const INDENT: u32 = 18;
const BAR_HEIGHT: u32 = 11;
const LINE_HEIGHT: u32 = 15;
const GAP_HEIGHT: u32 = 9;
const AXIS_HEIGHT: u32 = 26;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_have_several_lines() {
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(wrapped("abcdefgh ij", 5), ["abcde", "fgh", "ij"]);
        assert_eq!(wrapped(&"x".repeat(99), 5).len(), 3);
        assert_eq!(wrapped("tcp://a-b/c", 6), ["tcp://", "a-b/c"]);
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(fitted("12345", 5), "12345");
        assert_eq!(fitted("123456789", 6), "123…89");
    }

    #[test]
    fn no_text_can_become_a_tag() {
        assert_eq!(
            escape("<a b=\"c\">&'\u{1}"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#39;"
        );
    }
}
