//! Heat maps as SVG: one shade per value, from almost the background to the full colour, with the
//! number inside and a scale of the shades below.

use super::number::short;
use super::svg::{begin, escape, nothing};

/// Draws a heat map. Missing values leave an empty cell.
pub(super) fn draw(label: &str, columns: &[String], rows: &[(String, Vec<Option<f64>>)]) -> String {
    let heads: Vec<Vec<String>> = columns
        .iter()
        .map(|name| lines(name, columns.len()))
        .collect();
    let head = 8 + LINE * heads.iter().map(Vec::len).max().map_or(1, count);
    let bottom = head + count(rows.len()) * ROW;
    let values = rows
        .iter()
        .flat_map(|(_, values)| values.iter().flatten())
        .copied()
        .filter(|value| value.is_finite());
    if values.clone().next().is_none() {
        return nothing(label);
    }
    let mut svg = begin(label, bottom + SCALE);
    let greatest = values.fold(0.0, f64::max);
    let width = (100.0 - NAME) / columns.len().max(1) as f64;
    let left = |index: usize| NAME + width * index as f64;
    for (index, name) in heads.iter().enumerate() {
        for (line, y) in name.iter().zip((12..).step_by(LINE as usize)) {
            svg += &format!(
                "<text class=\"tick\" x=\"{:.2}%\" y=\"{y}\" text-anchor=\"middle\">{}</text>\n",
                left(index) + width / 2.0,
                escape(line)
            );
        }
    }
    for ((name, values), top) in rows.iter().zip((head..).step_by(ROW as usize)) {
        svg += &format!(
            "<text class=\"name\" x=\"0\" y=\"{}\">{}</text>\n",
            top + 19,
            escape(name)
        );
        for (index, value) in values.iter().enumerate() {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                field(&mut svg, (left(index), width), top, value, greatest);
            }
        }
    }
    scale(&mut svg, bottom + 10, greatest);
    svg += "</svg>\n";
    svg
}

/// Splits a column's head into lines that fit the column's width on a phone.
fn lines(name: &str, columns: usize) -> Vec<String> {
    let most = (NARROW * (100.0 - NAME) / 100.0 / columns.max(1) as f64 / LETTER).max(3.0);
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if (line.chars().count() + 1 + word.chars().count()) as f64 <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn count(many: usize) -> u32 {
    u32::try_from(many).expect("a sweep has few rows")
}

/// The scale of shades from 0 to the greatest value.
fn scale(svg: &mut String, top: u32, greatest: f64) {
    let (begin, width) = (NAME + 12.0, (100.0 - NAME - 30.0) / f64::from(SHADES));
    for step in 0..SHADES {
        *svg += &format!(
            "<rect class=\"heat scale\" x=\"{:.2}%\" y=\"{top}\" width=\"{:.2}%\" height=\"10\" \
                 fill-opacity=\"{:.3}\" />\n",
            begin + f64::from(step) * width,
            width + 0.1,
            shade(f64::from(step) / f64::from(SHADES - 1))
        );
    }
    let ends = [
        (begin - 1.5, "end", 0.0),
        (begin + f64::from(SHADES) * width + 1.5, "start", greatest),
    ];
    for (place, anchor, value) in ends {
        *svg += &format!(
            "<text class=\"tick\" x=\"{place:.2}%\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>\n",
            top + 9,
            if value > 0.0 {
                shortest(value)
            } else {
                "0".to_owned()
            }
        );
    }
}

/// Colour intensity for a fraction of the greatest value.
fn shade(part: f64) -> f64 {
    0.06 + 0.94 * part
}

fn field(svg: &mut String, (left, width): (f64, f64), top: u32, value: f64, greatest: f64) {
    let part = if greatest > 0.0 {
        (value / greatest).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let shade = shade(part);
    let over = if shade > OVER { " over" } else { "" };
    *svg += &format!(
        "<rect class=\"heat\" x=\"{left:.2}%\" y=\"{top}\" width=\"{:.2}%\" height=\"{}\" rx=\"3\" \
         fill-opacity=\"{shade:.3}\" />\n\
         <text class=\"field{over}\" x=\"{:.2}%\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        width - 0.4,
        ROW - 3,
        left + width / 2.0,
        top + 19,
        shortest(value)
    );
}

/// A number with as few characters as possible.
fn shortest(value: f64) -> String {
    match value {
        value if value >= 999_500.0 => format!("{}M", short(value / 1e6)),
        value if value >= 9_999.5 => format!("{:.0}k", value / 1e3),
        value => short(value),
    }
}

/// Width of the rows' names, in percent.
const NAME: f64 = 24.0;
const ROW: u32 = 31;
/// Height of a line of a column's head, in pixels.
const LINE: u32 = 14;
/// Height of the scale, in pixels.
const SCALE: u32 = 30;
const SHADES: u32 = 8;
/// Shade above which the number switches its colour, because black becomes hard to read on light
/// paper and white on dark paper. The colours of `chart.css` are chosen so that both need the same
/// value.
const OVER: f64 = 0.713;
/// Width of a picture on a phone, and of a character on an axis, in pixels.
const NARROW: f64 = 288.0;
const LETTER: f64 = 6.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_broken_where_columns_are_narrow() {
        assert_eq!(lines("READ 10 threads", 4), ["READ 10", "threads"]);
        assert_eq!(lines("READ 10 threads", 2), ["READ 10 threads"]);
        assert_eq!(lines("READ 10 threads", 100), ["READ", "10", "threads"]);
    }
}
