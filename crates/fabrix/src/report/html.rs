//! The demonstration's page: charts, table, machine and command in one self-contained file.
//!
//! It loads no scripts, fonts or images. The browser's preference selects light or dark mode.
//! `page` builds the contents, and `report.css` the appearance.

use fabrix_bench::Counted;
use fabrix_bench::matrix::{Matrix, Row};

use super::Context;
use super::matrix::{lead, meaning, table};
use super::number::{grouped, mb_per_s, moment, percent, time};
use super::page::{self, DOUBTS, document, facts, said};
use super::sides::{bandwidth, cpu, iops, latency, ratio};
use super::svg::escape;

/// The complete page.
pub(crate) fn page(matrix: &Matrix, context: &Context) -> String {
    let workloads = Counted(matrix.rows.len() as u64, "workload");
    let title = format!("{workloads}, local and remote");
    let columns = format!(
        "<div class=\"column\">{}{}{}</div><div class=\"column\">{}{}</div>",
        iops(matrix),
        bandwidth(matrix),
        ratio(matrix),
        latency(matrix),
        cpu(matrix)
    );
    let main = format!(
        "{}{}{}<div class=\"columns\">{columns}</div>\n{}{}",
        header(matrix, context, &title),
        tiles(matrix),
        said("warnings", DOUBTS, &matrix.warnings),
        full_table(matrix),
        facts(context),
    );
    document(&title, &main)
}

fn header(matrix: &Matrix, context: &Context, title: &str) -> String {
    format!(
        "<header>\n<p class=\"brand\">Fabrix {}</p>\n<h1>{title}</h1>\n\
         <p class=\"sides\"><span class=\"key local\"></span>local: <b>{}</b> \
         <span class=\"key remote\"></span>remote: <b>{}</b></p>\n<p class=\"lead\">{}</p>\n\
         <p>{}</p>\n<p class=\"muted\">{}</p>\n</header>\n",
        escape(&context.version),
        escape(&matrix.local),
        escape(&matrix.remote),
        escape(&lead(matrix)),
        escape(&meaning(matrix).join(" ")),
        moment(context.timestamp)
    )
}

/// The key figures at the top.
fn tiles(matrix: &Matrix) -> String {
    let find = |name: &str| matrix.rows.iter().find(|row| row.name == name);
    let of_wire = |row: &Row, wire: String, local: String| {
        format!(
            "{} of {wire} on the wire; {local} local",
            percent(row.wire_ratio())
        )
    };
    let workloads = Counted(matrix.rows.len() as u64, "workload");
    let mean = percent(matrix.wire_ratio());
    let all = format!("of bare TCP sockets, geometric mean of {workloads}");
    let mut tiles = tile("Remote disk / wire", &mean, "", &all);
    if let Some(row) = find("4k random read") {
        tiles += &tile(
            "4k random read, remote",
            &grouped(row.remote.iops),
            "IOPS",
            &of_wire(row, grouped(row.wire_iops), grouped(row.local.iops)),
        );
        let p99 = format!(
            "p99 {}, local mean {}",
            time(row.remote.p99_us * 1e3),
            time(row.local.mean_us * 1e3)
        );
        tiles += &tile(
            "4k random read, mean latency",
            &time(row.remote.mean_us * 1e3),
            "",
            &p99,
        );
    }
    if let Some(row) = find("64k sequential read") {
        tiles += &tile(
            "64k sequential read, remote",
            &mb_per_s(row.remote.bw_bytes),
            "MB/s",
            &of_wire(
                row,
                mb_per_s(row.wire_iops * row.block_bytes),
                mb_per_s(row.local.bw_bytes),
            ),
        );
    }
    format!("<section class=\"tiles\">\n{tiles}</section>\n")
}

/// A tile. `note` and `unit` are our own markup, never text from outside.
fn tile(title: &str, value: &str, unit: &str, note: &str) -> String {
    format!(
        "<div class=\"tile\"><p class=\"muted\">{title}</p><p class=\"big\">{value} <small>{unit}</small></p>\
         <p class=\"muted\">{note}</p></div>\n"
    )
}

fn full_table(matrix: &Matrix) -> String {
    page::table_with(
        &table(matrix),
        "<p class=\"muted\">MB/s is 10<sup>6</sup> bytes per second. CPU is cores kept busy: ini by the \
         initiator's side, tgt by the target. Of wire and of local are the remote IOPS in percent of those of \
         bare TCP sockets and of the local disk. Bare TCP sockets have as many requests in flight on one \
         connection, 72 bytes each, with responses of the block size. For writes the data travels the other \
         way. Memory answers each request at once, so the local disk has one request in flight whatever \
         iodepth says.</p>\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use fabrix_bench::matrix::Cell;

    fn sample_page() -> String {
        page(&sample::matrix(), &sample::context())
    }

    /// Checks that all tags are closed in order. Panics with the error.
    fn check_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let body = page
            .strip_prefix("<!DOCTYPE html>")
            .expect("a page says what it is");
        for (at, _) in body.match_indices('<') {
            let tag = &body[at + 1..at + body[at..].find('>').expect("every tag ends")];
            let name = tag
                .trim_start_matches('/')
                .split([' ', '\n'])
                .next()
                .unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "closed out of order");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "never closed: {open:?}");
    }

    #[test]
    fn the_page_is_well_formed() {
        check_well_formed(&sample_page());
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = sample_page();
        for word in [
            "http://", "https://", "src=", "href=", "url(", "@import", "<link", "<script", "<img",
        ] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn every_workload_stands_in_the_table_and_in_its_charts() {
        let page = sample_page();
        for row in &sample::matrix().rows {
            // A text each for IOPS or bandwidth, share of the wire, latency and CPU, and the
            // head of a row of the table.
            let count = [("", "text"), ("<span", "span")].map(|(open, close)| {
                let shown = format!("{open}>{}</{close}>", row.name);
                page.matches(&shown).count()
            });
            assert_eq!(count, [4, 1], "{}", row.name);
        }
    }

    #[test]
    fn names_from_outside_cannot_become_markup() {
        let mut matrix = sample::matrix();
        matrix.rows[0].name = "4k <script>alert(1)</script>".into();
        matrix.local = "ram:1G\"><img src=x>".into();
        let mut context = sample::context();
        context.command = "fabrix demo '</pre><script>'".into();
        context.facts.push(("<b>".into(), "&amp".into()));
        let page = page(&matrix, &context);
        check_well_formed(&page);
        assert!(!page.contains("<script") && !page.contains("<img") && page.contains("&amp;amp"));
    }

    #[test]
    fn an_empty_matrix_and_zeroes_still_make_a_page() {
        check_well_formed(&page(&Matrix::default(), &Context::default()));
        let mut matrix = sample::matrix();
        for row in &mut matrix.rows {
            (row.local, row.remote) = (Cell::default(), Cell::default());
        }
        let page = page(&matrix, &Context::default());
        check_well_formed(&page);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    #[test]
    fn the_page_reads_as_it_did() {
        sample::golden("matrix.html", &sample_page());
    }
}
