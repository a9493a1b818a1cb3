//! Figures as SVG, inside a page and as separate files.
//!
//! Bars are drawn by `svg`, lines by `curves`, and heat maps by `heat`. In a page, a figure uses
//! the page's colours. A file contains its own colours for light and dark mode.

use super::number;
use super::scale::{Scale, counts, times};
use super::sheet::{Drawing, Figure};
use super::svg::{Chart, Group, Line, Mark, class, draw};
pub(crate) use super::svg::{escape, fitted};
use super::{curves, heat};

/// Colours of all figures. A page includes them once, and every file contains them.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// The drawing for a page.
pub(super) fn inline(figure: &Figure) -> String {
    match &figure.drawing {
        Drawing::Bars { groups, time, .. } => draw(&bars(&figure.title, groups, *time)),
        Drawing::Stacks { rows, .. } => draw(&stacks(&figure.title, rows)),
        Drawing::Lines { across, up, lines } => curves::draw(&figure.title, across, up, lines),
        Drawing::Heat { columns, rows } => heat::draw(&figure.title, columns, rows),
    }
}

/// The series that have a value: indices of their colours, and names. Empty if the drawing contains
/// the names.
pub(super) fn legend(figure: &Figure) -> Vec<(usize, &str)> {
    let (names, drawn): (Vec<&String>, Vec<bool>) = match &figure.drawing {
        Drawing::Bars { series, groups, .. } => {
            let has = |index: usize| {
                groups
                    .iter()
                    .any(|(_, bars)| matches!(bars.get(index), Some(Some(_))))
            };
            (
                series.iter().collect(),
                (0..series.len()).map(has).collect(),
            )
        }
        Drawing::Stacks { series, rows } => {
            let has = |index: usize| {
                rows.iter()
                    .any(|(_, parts)| parts.get(index).is_some_and(|part| *part > 0.0))
            };
            (
                series.iter().collect(),
                (0..series.len()).map(has).collect(),
            )
        }
        Drawing::Lines { lines, .. } => lines
            .iter()
            .map(|line| (&line.name, !line.points.is_empty()))
            .unzip(),
        Drawing::Heat { .. } => (Vec::new(), Vec::new()),
    };
    let all = names.into_iter().zip(drawn).enumerate();
    let drawn = all.filter(|(_, (_, drawn))| *drawn);
    drawn
        .map(|(index, (name, _))| (index, name.as_str()))
        .collect()
}

/// The figure as a file with title, legend and colours.
pub(crate) fn file(figure: &Figure) -> String {
    let drawing = inline(figure);
    let height = height(&drawing);
    let (keys, legend_height) = keys(&legend(figure));
    let top = 58 + legend_height;
    let inner = drawing
        .replacen(
            "<svg class=\"chart\"",
            &format!("<svg x=\"20\" y=\"{top}\""),
            1,
        )
        .replacen("width=\"100%\"", "width=\"720\"", 1);
    let title = escape(&fitted(&figure.title, TITLE_LETTERS));
    let unit = escape(&fitted(&figure.unit, UNIT_LETTERS));
    let whole = height + top + 20;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"760\" height=\"{whole}\" \
         viewBox=\"0 0 760 {whole}\" \
         font-family=\"system-ui, 'Segoe UI', Roboto, Arial, sans-serif\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" width=\"760\" height=\"{whole}\" />\n\
         <text class=\"title\" x=\"20\" y=\"28\">{title}</text>\n<text class=\"value\" x=\"20\" \
         y=\"46\">{unit}</text>\n\
         {keys}{inner}</svg>\n"
    )
}

/// The legend of a file, in several lines if needed, and its height.
fn keys(legend: &[(usize, &str)]) -> (String, usize) {
    let (mut keys, mut left, mut line) = (String::new(), 20, 0);
    for (index, name) in legend {
        let name = fitted(name, UNIT_LETTERS);
        let width = 36 + LETTER * name.chars().count();
        if left + width > WIDTH && left > 20 {
            (left, line) = (20, line + 1);
        }
        let class = class(*index);
        keys += &format!(
            "<rect class=\"key {class}\" x=\"{left}\" y=\"{}\" width=\"10\" height=\"10\" rx=\"3\" />\n\
             <text class=\"value\" x=\"{}\" y=\"{}\">{}</text>\n",
            56 + line * 20,
            left + 16,
            65 + line * 20,
            escape(&name)
        );
        left += width;
    }
    let lines = if legend.is_empty() { 0 } else { line + 1 };
    (keys, lines * 20 + usize::from(lines > 0) * 4)
}

/// Width of a file's drawing with its margins, in pixels.
const WIDTH: usize = 760;
/// Width of a legend's character in pixels, and the number of characters in a file's title and in
/// the line below it.
const LETTER: usize = 8;
const TITLE_LETTERS: usize = 64;
const UNIT_LETTERS: usize = 88;

/// The height attribute of a drawing.
fn height(drawing: &str) -> usize {
    let after = drawing
        .split_once("height=\"")
        .map_or("", |(_, after)| after);
    let digits = after.split('"').next().unwrap_or_default();
    digits
        .parse()
        .expect("every drawing begins with its height")
}

/// The scale of a chart and the text of a value, for microseconds or for other values.
fn linear(greatest: f64, time: bool) -> (Scale, fn(f64) -> String) {
    if time {
        (Scale::linear(greatest, times), |us| number::time(us * 1e3))
    } else {
        (Scale::linear(greatest, counts), number::label_of)
    }
}

fn bars(label: &str, groups: &[(String, Vec<Option<f64>>)], time: bool) -> Chart {
    let values = groups
        .iter()
        .flat_map(|(_, values)| values.iter().flatten().copied());
    let greatest = values.fold(0.0, f64::max);
    let (scale, text) = linear(greatest, time);
    let line = |(index, value): (usize, &Option<f64>)| {
        let value = (*value)?;
        Some(Line::bar(class(index), value, text(value)))
    };
    let group = |(name, values): &(String, Vec<Option<f64>>)| Group {
        name: name.clone(),
        lines: values.iter().enumerate().filter_map(line).collect(),
    };
    Chart {
        label: label.to_owned(),
        scale,
        rule: None,
        groups: groups.iter().map(group).collect(),
    }
}

fn stacks(label: &str, rows: &[(String, Vec<f64>)]) -> Chart {
    let greatest = rows
        .iter()
        .map(|(_, parts)| parts.iter().sum::<f64>())
        .fold(0.0, f64::max);
    let (scale, text) = linear(greatest, true);
    let group = |(name, parts): &(String, Vec<f64>)| {
        let mut end = 0.0;
        let mut marks = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let from = end;
            end += part.max(0.0);
            marks.push(Mark::Bar {
                class: class(index),
                from,
                to: end,
            });
        }
        Group {
            name: name.clone(),
            lines: vec![Line {
                marks,
                label: text(parts.iter().sum()),
            }],
        }
    };
    Chart {
        label: label.to_owned(),
        scale,
        rule: None,
        groups: rows.iter().map(group).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sheet::{Axis, Curve};

    fn figure(drawing: Drawing) -> Figure {
        Figure {
            name: "f".into(),
            title: "A <title>".into(),
            unit: "units & more".into(),
            drawing,
        }
    }

    /// One figure of each kind, including values that are not numbers.
    pub(super) fn all() -> Vec<Figure> {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let points = vec![(1.0, 10.0), (2.0, f64::NAN), (4.0, 40.0), (8.0, 0.0)];
        let curve = Curve {
            name: "c<1>".into(),
            points,
            mark: Some((2, "knee".into())),
        };
        [
            Drawing::Bars {
                series: names(&["a", "b"]),
                groups: vec![
                    ("g".into(), vec![Some(1.0), None]),
                    ("<h>".into(), vec![Some(f64::NAN), Some(2e6)]),
                ],
                time: false,
            },
            Drawing::Stacks {
                series: names(&["a", "b"]),
                rows: vec![("g".into(), vec![1.0, 2.0])],
            },
            Drawing::Lines {
                across: Axis::log("depth"),
                up: Axis::linear("IOPS"),
                lines: vec![curve.clone(), Curve::default()],
            },
            Drawing::Lines {
                across: Axis::linear("s"),
                up: Axis::time("latency"),
                lines: vec![curve],
            },
            Drawing::Heat {
                columns: names(&["1", "2"]),
                rows: vec![
                    ("x".into(), vec![Some(3.0), None]),
                    ("y".into(), vec![Some(f64::INFINITY), Some(0.0)]),
                ],
            },
        ]
        .map(figure)
        .into()
    }

    #[test]
    fn every_figure_is_whole_escaped_and_free_of_nonsense() {
        for figure in all() {
            for svg in [inline(&figure), file(&figure)] {
                assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
                for word in ["NaN", "inf", "<title>", "<h>", "<1>"] {
                    assert!(!svg.contains(word), "{word} in {svg}");
                }
            }
        }
    }

    #[test]
    fn a_file_needs_nothing_from_elsewhere_and_knows_the_dark() {
        let svg = file(&all()[0]);
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains("url(") && !svg.contains("href"));
    }
}
