//! Reports with all possible elements, stored as golden pages and pictures. `cargo xtask pages`
//! checks them in a browser. The figures are invented, in the form of the profiles' figures.

use fabrix_bench::Counted;
use fabrix_bench::series::{Moved, Point};
use std::time::Duration;

use super::sample::{self, golden};
use super::sheet::{Axis, Cell, Curve, Drawing, Figure, Report, Run, Shown, Table};
use super::{figure, page, views};
use crate::profiles::{path, published};

/// Every kind of table and figure with realistic numbers of rows, series and characters.
fn all() -> Report {
    let runs: Vec<Run> = [
        "ram:1G",
        "ram:1G over NVMe/TCP",
        "iscsi://192.0.2.10/iqn.2026-01.io.fabrix:disk/0",
    ]
    .into_iter()
    .zip([1.0, 3.4, 9.7])
    .map(|(disk, times)| run(disk, times))
    .collect();
    let mut measured = workloads();
    let Ok(published) = published::find("starwind-ram-rdma") else {
        panic!("it is there")
    };
    published.beside(&mut measured, str::to_owned);
    Report {
        profile: "starwind".into(),
        title: "ram:1G: best setting, 13 workloads, latencies".into(),
        lead: "the method of StarWind's article on its NVMe-oF initiator".into(),
        notes: vec![
            "each measurement lasted 1 s; the article's lasted 60 s (--as-published)".into(),
        ],
        warnings: vec![
            "other programs kept 0.7 cores busy during `4k random read`: a noisy neighbour".into(),
        ],
        tables: vec![measured, views::overview(&runs), published.table()],
        figures: vec![
            search(),
            bars(),
            sweep(),
            field(),
            layers(),
            views::tails(&runs),
            views::course(&runs),
        ],
        runs,
    }
}

/// Extreme cases: long names, missing measurements, widely different values, many series.
fn edges() -> Report {
    let long =
        "nvme+tcp://192.0.2.10:4420/nqn.2026-01.io.fabrix:a-rather-long-name-of-a-subsystem/1"
            .to_owned();
    let many: Vec<Curve> = (1..=12_u32)
        .map(|line| Curve {
            name: format!("job {line}, {long}"),
            points: (0..12)
                .map(|at| (10_f64.powi(at - 3), f64::from(line) * 10_f64.powi(at / 2)))
                .collect(),
            mark: (line == 12).then(|| (0, "the first".into())),
        })
        .collect();
    let bars = |name: &str, values: Vec<Option<f64>>| Figure {
        name: name.into(),
        title: format!("Values of {long}"),
        unit: "IOPS; more is better".into(),
        drawing: Drawing::Bars {
            time: false,
            series: values.iter().map(|_| long.clone()).collect(),
            groups: vec![(long.clone(), values)],
        },
    };
    let mut table = Table::new(
        "long",
        "A table that is wide",
        [("", "workload"), ("", "disk")],
    );
    table.push(vec![
        Cell::text(&long),
        Cell::text(format!("{long}, {long}")),
    ]);
    let none = |name: &str, drawing| Figure {
        name: name.into(),
        title: "Nothing".into(),
        unit: String::new(),
        drawing,
    };
    let (across, up) = (Axis::log("depth"), Axis::linear("IOPS"));
    Report {
        profile: "edges".into(),
        title: long.clone(),
        lead: long.clone(),
        warnings: vec![format!("{long} did not answer")],
        tables: vec![table],
        figures: vec![
            bars(
                "edge-bars",
                vec![Some(3e-9), Some(4_567_890_123.0), None, Some(0.0)],
            ),
            Figure {
                name: "edge-lines".into(),
                title: "Twelve lines".into(),
                unit: "from small to large".into(),
                drawing: Drawing::Lines {
                    across: Axis::log("depth"),
                    up: Axis::log("IOPS"),
                    lines: many,
                },
            },
            bars("no-bars", vec![None]),
            none(
                "no-lines",
                Drawing::Lines {
                    across,
                    up,
                    lines: Vec::new(),
                },
            ),
            none(
                "no-heat",
                Drawing::Heat {
                    columns: vec!["1".into()],
                    rows: vec![("x".into(), vec![None])],
                },
            ),
            none(
                "no-stacks",
                Drawing::Stacks {
                    series: Vec::new(),
                    rows: Vec::new(),
                },
            ),
        ],
        ..Report::default()
    }
}

/// A run whose slow requests are `times` times slower than those of the sample.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive sample values"
)]
fn run(disk: &str, times: f64) -> Run {
    let mut results = sample::results();
    for (percent, ns) in &mut results.aggregate.total.latency.percentiles_ns {
        let slow = 1.0 + (*percent / 100.0).powi(40) * 30.0;
        *ns = (*ns as f64 * times * slow) as u64;
    }
    let reading = |at: u64| {
        let ios = (120_000.0 / times) as u64 + (at * 37 % 11) * 900;
        let moved = Moved {
            ios,
            bytes: ios * 4096,
            wait_ns: 7_500_000_000,
        };
        let (at, span) = (Duration::from_millis(at * 500), Duration::from_millis(500));
        Point {
            at,
            span,
            sides: [moved, Moved::default(), Moved::default()],
        }
    };
    results.series = (1..=60).map(reading).collect();
    Run {
        disk: disk.into(),
        target_cores: Some(0.7),
        missed: None,
        ..sample::run(results)
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn workloads() -> Table {
    let sides = ["ram:1G", "ram:1G over NVMe/TCP"];
    let heads = sides
        .into_iter()
        .flat_map(|side| ["IOPS", "MiB/s", "mean us"].map(|head| (side, head)));
    let columns = [("", "workload")].into_iter().chain(heads);
    let mut table = Table::new("workloads", "13 workloads, numjobs=4 iodepth=8", columns);
    for row in sample::matrix().rows {
        let cells = [row.local, row.remote].into_iter().flat_map(|cell| {
            [
                Cell::Number(cell.iops, Shown::Grouped),
                Cell::Number(cell.bw_bytes / f64::from(1 << 20), Shown::Fixed(2)),
                Cell::Number(cell.mean_us, Shown::Time),
            ]
        });
        table.push([Cell::text(&row.name)].into_iter().chain(cells).collect());
    }
    table
}

fn bars() -> Figure {
    let group =
        |row: fabrix_bench::Row| (row.name, vec![Some(row.local.iops), Some(row.remote.iops)]);
    Figure {
        name: "workloads".into(),
        title: "13 workloads, numjobs=4 iodepth=8".into(),
        unit: "IOPS; more is better".into(),
        drawing: Drawing::Bars {
            time: false,
            series: names(&["ram:1G", "ram:1G over NVMe/TCP"]),
            groups: sample::matrix().rows.into_iter().map(group).collect(),
        },
    }
}

fn search() -> Figure {
    let line = |jobs: u32| Curve {
        name: Counted(jobs.into(), "thread").to_string(),
        points: (0..8)
            .map(|power| {
                let flying = f64::from(jobs << power);
                (f64::from(1 << power), 700_000.0 * flying / (flying + 12.0))
            })
            .collect(),
        mark: (jobs == 4).then(|| (5, "the knee: 4 x 32".into())),
    };
    Figure {
        name: "search".into(),
        title: "The search".into(),
        unit:
            "4k random reads: IOPS against depth; the ring is the setting taken, numjobs x iodepth"
                .into(),
        drawing: Drawing::Lines {
            across: Axis::log("iodepth"),
            up: Axis::linear("IOPS"),
            lines: [1, 2, 4, 8].map(line).into(),
        },
    }
}

const KINDS: [&str; 4] = [
    "READ 10 threads",
    "READ 2 threads",
    "WRITE 10 threads",
    "WRITE 2 threads",
];

/// MB/s of a command size for a kind, and the size in KiB.
fn size(power: u32, kind: usize) -> (f64, f64) {
    let kib = f64::from(1 << power);
    (kib, 1_550.0 * kib / (kib + 30.0 + 20.0 * kind as f64))
}

fn sweep() -> Figure {
    let line = |(kind, name): (usize, &&str)| Curve {
        name: (*name).to_owned(),
        points: (0..=10).map(|power| size(power, kind)).collect(),
        mark: None,
    };
    Figure {
        name: "sweep".into(),
        title: "Command sizes".into(),
        unit: "MB/s; more is better".into(),
        drawing: Drawing::Lines {
            across: Axis::log("KiB"),
            up: Axis::linear("MB/s"),
            lines: KINDS.iter().enumerate().map(line).collect(),
        },
    }
}

fn field() -> Figure {
    let row = |power| {
        let values = (0..KINDS.len()).map(|kind| Some(size(power, kind).1));
        (format!("{} KiB", 1 << power), values.collect())
    };
    Figure {
        name: "sweep-field".into(),
        title: "Command sizes".into(),
        unit: "MB/s; more is better".into(),
        drawing: Drawing::Heat {
            columns: names(&KINDS),
            rows: (0..=10).map(row).collect(),
        },
    }
}

fn layers() -> Figure {
    let costs = [
        ("the disk", 1.2),
        ("+ NVMe/TCP over loopback", 17.5),
        ("+ header digest", 0.6),
        ("+ data digest", 2.9),
    ];
    path::stack(&costs.map(|(name, cost)| (name.to_owned(), cost)))
}

#[test]
fn pages_and_pictures_read_as_they_did() {
    for (name, report) in [("report", all()), ("edges", edges())] {
        golden(
            &format!("{name}.html"),
            &page::page(&report, &sample::context()),
        );
        for part in &report.figures {
            golden(&format!("{}.svg", part.name), &figure::file(part));
        }
    }
}
