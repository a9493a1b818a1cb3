//! A field of values as SVG: one shade each, from almost the paper's to the full colour, with the number in it.

use std::fmt::Write;

use super::number::short;
use super::svg::escape;

/// Draws a field; a value that is missing leaves its place empty.
pub(super) fn draw(label: &str, columns: &[String], rows: &[(String, Vec<Option<f64>>)]) -> String {
    let height = HEAD + u32::try_from(rows.len()).expect("a sweep has few rows") * ROW + 4;
    let mut svg = format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" width=\"100%\" height=\"{height}\">\n",
        escape(label)
    );
    let width = (100.0 - NAME) / columns.len().max(1) as f64;
    let left = |index: usize| NAME + width * index as f64;
    for (index, name) in columns.iter().enumerate() {
        put(
            &mut svg,
            format_args!(
                "<text class=\"tick\" x=\"{:.2}%\" y=\"14\" text-anchor=\"middle\">{}</text>\n",
                left(index) + width / 2.0,
                escape(name)
            ),
        );
    }
    let values = rows
        .iter()
        .flat_map(|(_, values)| values.iter().flatten())
        .copied();
    let greatest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    for ((name, values), top) in rows.iter().zip((HEAD..).step_by(ROW as usize)) {
        put(
            &mut svg,
            format_args!(
                "<text class=\"name\" x=\"0\" y=\"{}\">{}</text>\n",
                top + 20,
                escape(name)
            ),
        );
        for (index, value) in values.iter().enumerate() {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                field(&mut svg, (left(index), width), top, value, greatest);
            }
        }
    }
    svg += "</svg>\n";
    svg
}

fn field(svg: &mut String, (left, width): (f64, f64), top: u32, value: f64, greatest: f64) {
    let part = if greatest > 0.0 {
        (value / greatest).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let shade = 0.06 + 0.94 * part;
    let over = if shade > 0.55 { " over" } else { "" };
    put(
        svg,
        format_args!(
            "<rect class=\"s0\" x=\"{left:.2}%\" y=\"{top}\" width=\"{:.2}%\" height=\"{}\" rx=\"3\" \
         fill-opacity=\"{shade:.2}\" />\n\
         <text class=\"field{over}\" x=\"{:.2}%\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            width - 0.4,
            ROW - 3,
            left + width / 2.0,
            top + 19,
            shortest(value)
        ),
    );
}

/// As few letters as say it.
fn shortest(value: f64) -> String {
    match value {
        value if value >= 999_500.0 => format!("{}M", short(value / 1e6)),
        value if value >= 9_999.5 => format!("{:.0}k", value / 1e3),
        value => short(value),
    }
}

fn put(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("a String takes everything");
}

/// The part of the width that the rows' names take.
const NAME: f64 = 14.0;
const HEAD: u32 = 22;
const ROW: u32 = 31;
