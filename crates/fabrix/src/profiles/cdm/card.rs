//! The card: a picture with the scores of a disk, of our own design. The bars are logarithmic: a
//! power of ten takes a sixth of the width, starting at 0.1 MB/s.

use fabrix_bench::Counted;
use fabrix_block::spec::Size;

use super::{Line, Score};
use crate::cli::bench::args::CdmArgs;
use crate::report::figure::{STYLE, escape, fitted};

const ROW: usize = 66;
const COLUMN: usize = 280;
/// Characters of the title that fit above a column.
const LETTERS: usize = 28;

/// Draws the card.
pub(super) fn draw(uri: &str, (args, bytes): (&CdmArgs, u64), lines: &[Line]) -> String {
    let columns = if args.mix.is_some() { 3 } else { 2 };
    let (width, height) = (150 + columns * COLUMN + 20, 96 + lines.len() * ROW + 34);
    let mut body = String::new();
    for (index, name) in ["Read", "Write", "Mix"]
        .into_iter()
        .enumerate()
        .take(columns)
    {
        body += &format!(
            "<text class=\"name\" x=\"{}\" y=\"84\">{name}, MB/s</text>\n",
            150 + index * COLUMN
        );
    }
    for (row, line) in lines.iter().enumerate() {
        let top = 96 + row * ROW;
        let name = line.test.name();
        let (kind, queues) = name.split_once(' ').unwrap_or((&name, ""));
        body += &format!(
            "<text class=\"title\" x=\"20\" y=\"{}\">{kind}</text>\n<text class=\"value\" x=\"20\" \
             y=\"{}\">{queues}</text>\n",
            top + 28,
            top + 46
        );
        for (column, score) in line.scores.iter().enumerate().take(columns) {
            body += &field(150 + column * COLUMN, top, column, score.as_ref());
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, 'Segoe UI', Roboto, Arial, sans-serif\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"12\" />\n\
         <text class=\"title\" x=\"20\" y=\"34\">{}</text>\n\
         <text class=\"value\" x=\"20\" y=\"54\">{} region, best of {} of {} s; bars are \
         logarithmic</text>\n\
         {body}<text class=\"value\" x=\"20\" y=\"{}\">fabrix {}</text>\n</svg>\n",
        escape(&fitted(uri, LETTERS * columns)),
        Size(bytes),
        Counted(args.count.into(), "run"),
        args.runtime.as_secs_f64(),
        height - 14,
        env!("CARGO_PKG_VERSION")
    )
}

fn field(left: usize, top: usize, column: usize, score: Option<&Score>) -> String {
    let Some(score) = score else {
        return String::new();
    };
    let full = COLUMN - 20;
    let part = ((score.mb_per_s.max(0.1) / 0.1).log10() / 6.0).clamp(0.0, 1.0);
    format!(
        "<rect class=\"s{column}\" x=\"{left}\" y=\"{}\" width=\"{full}\" height=\"{}\" rx=\"6\" \
         fill-opacity=\"0.10\" />\n\
         <rect class=\"s{column}\" x=\"{left}\" y=\"{}\" width=\"{:.0}\" height=\"{}\" rx=\"6\" \
         fill-opacity=\"0.35\" />\n\
         <text class=\"title\" x=\"{}\" y=\"{}\">{:.2}</text>\n\
         <text x=\"{}\" y=\"{}\">{:.0} IOPS, {:.1} us, median {:.0}</text>\n",
        top + 4,
        ROW - 10,
        top + 4,
        full as f64 * part,
        ROW - 10,
        left + 10,
        top + 28,
        score.mb_per_s,
        left + 10,
        top + 46,
        score.iops,
        score.latency_us,
        score.median_mb_per_s
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Score, test};
    use super::*;
    use crate::report::sample::golden;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: CdmArgs,
    }

    #[test]
    fn the_card_reads_as_it_did() {
        let score = |mb_per_s: f64| {
            Some(Score {
                mb_per_s,
                median_mb_per_s: mb_per_s * 0.97,
                iops: mb_per_s * 244.1,
                latency_us: 8_192.0 / mb_per_s,
            })
        };
        let lines = [
            (false, 1024, 8, 1, 3254.7),
            (true, 4, 32, 16, 812.3),
            (true, 4, 1, 1, 0.04),
        ]
        .map(|(random, kib, queues, threads, mb_per_s)| Line {
            test: test(random, kib, queues, threads),
            scores: [score(mb_per_s), score(mb_per_s * 0.4), None],
        });
        let uri =
            "nvme+tcp://192.0.2.10:4420/nqn.2026-01.io.fabrix:a-rather-long-name-of-a-subsystem/1";
        let args = Words::parse_from(["cdm", uri]).args;
        golden("card.svg", &draw(uri, (&args, 1 << 30), &lines));
    }
}
