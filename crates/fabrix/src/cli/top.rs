//! `fabrix top`: a periodically updated table of the activity of attached disks and exports.
//!
//! It polls the control sockets and computes differences. On a terminal it uses the alternate
//! screen and restores the terminal at the end. Otherwise it prints one table or JSON line after
//! the other.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fabrix_rt::terminal::KeyByKey;
use serde_json::{Value, json};

use super::list::{faults, paths};
use super::terminal::{print, print_on, say};
use crate::api::{Client, attachment};
use crate::args::{Format, TopArgs};
use crate::attached::records::Records;
use crate::clock::since_1970;
use crate::counters::{Moment, Rates};
use crate::failure::Failure;
use crate::signals::end_a_command;

/// A disk at one time.
struct Row {
    /// Key that identifies the disk across readings.
    key: String,
    told: Value,
    moment: Moment,
}

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let is_screen = args.output == Format::Text
        && std::io::stdout().is_terminal()
        && std::io::stdin().is_terminal();
    let (tell, told) = channel();
    let asked = tell.clone();
    end_a_command(move |_| asked.send(()).is_ok())?;
    let _screen = is_screen.then(|| Screen::begin(tell)).transpose()?;
    let mut earlier = (Instant::now(), look(args)?);
    let mut left = args.count;
    while left != Some(0) && !is_over(&told, args.interval) {
        let now = (Instant::now(), look(args)?);
        let took = now.0 - earlier.0;
        let rows: Vec<(Value, Rates)> = now
            .1
            .iter()
            .map(|row| (row.told.clone(), rates(row, &earlier.1, took)))
            .collect();
        let goes_on = print_on(&match args.output {
            Format::Json => format!("{}\n", as_json(&rows, took)),
            Format::Text if is_screen => format!("{CLEAR}{}", table(&rows).replace('\n', "\r\n")),
            Format::Text => table(&rows) + "\n",
        })?;
        if !goes_on {
            break;
        }
        earlier = now;
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the next reading. True: the user has requested the end.
fn is_over(told: &Receiver<()>, interval: Duration) -> bool {
    !matches!(told.recv_timeout(interval), Err(RecvTimeoutError::Timeout))
}

fn rates(row: &Row, earlier: &[Row], took: Duration) -> Rates {
    let before = earlier.iter().find(|before| before.key == row.key);
    // A new disk has done all its work in this interval.
    let nothing = Moment::default();
    row.moment
        .since(before.map_or(&nothing, |before| &before.moment), took)
}

/// Reads all control sockets. Sockets without an answer are skipped: their process may have ended.
fn look(args: &TopArgs) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    // With `--api` only, no folder of attachments is needed.
    let records = match Records::open() {
        Ok(records) => Some(records),
        Err(_) if !args.api.is_empty() => None,
        Err(failure) => return Err(failure),
    };
    for found in records
        .iter()
        .map(Records::all)
        .collect::<Result<Vec<_>, _>>()?
        .concat()
    {
        let Some(records) = records.as_ref().filter(|_| found.alive) else {
            continue;
        };
        let socket = records.socket(&found.record.name);
        let client = Client::of_attachment(socket).for_queries();
        if let Ok(told) = client.ask("GET", attachment::COUNTERS, &json!({})) {
            rows.push(Row {
                key: format!("{} {}", found.record.name, found.record.pid),
                moment: Moment::read(&told["counters"]),
                told: json!({
                    "kind": "attachment",
                    "name": told["name"],
                    "where": told["device"],
                    "state": told["state"],
                    "fault": told["fault"],
                    "paths": told["paths"],
                    "reconnects": told["reconnects"],
                }),
            });
        }
    }
    for api in &args.api {
        let told = Client::of_target(api)?.ask("GET", "/v1/counters", &json!({}))?;
        for export in told["exports"].as_array().map_or(&[][..], Vec::as_slice) {
            rows.push(Row {
                key: format!("{api} {} {}", export["nsid"], export["uuid"]),
                moment: Moment::read(&export["counters"]),
                told: json!({
                    "kind": "export",
                    "name": format!("nsid {}", export["nsid"]),
                    "where": export["disk"],
                    "state": "served",
                    "paths": [],
                    "reconnects": 0,
                }),
            });
        }
    }
    Ok(rows)
}

fn as_json(rows: &[(Value, Rates)], took: Duration) -> Value {
    let row = |(told, rates): &(Value, Rates)| {
        let mut row = told.clone();
        if let (Some(row), Value::Object(rates)) = (row.as_object_mut(), rates.json()) {
            row.extend(rates);
        }
        row
    };
    json!({
        "schema": 1,
        "time": since_1970().as_secs_f64(),
        "interval_s": took.as_secs_f64(),
        "disks": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn table(rows: &[(Value, Rates)]) -> String {
    let mut text = line(
        ["name", "where", "state"],
        &[
            "r/s", "w/s", "rMB/s", "wMB/s", "depth", "p50 us", "p99 us", "err", "paths", "reconn",
        ]
        .map(str::to_owned),
    );
    for (told, rates) in rows {
        let word = |key: &str| told[key].as_str().unwrap_or_default();
        let us = |ns: u64| format!("{:.0}", ns as f64 / 1e3);
        text += &line(
            [word("name"), word("where"), word("state")],
            &[
                format!("{:.0}", rates.read_iops),
                format!("{:.0}", rates.write_iops),
                format!("{:.1}", rates.read_bytes_per_s / 1e6),
                format!("{:.1}", rates.write_bytes_per_s / 1e6),
                format!("{:.1}", rates.queue_depth),
                us(rates.p50_ns),
                us(rates.p99_ns),
                rates.errors.to_string(),
                paths(&told["paths"]),
                told["reconnects"].to_string(),
            ],
        );
    }
    let told: Vec<Value> = rows.iter().map(|(told, _)| told.clone()).collect();
    text += &faults(&told);
    if rows.is_empty() {
        text += "(nothing is attached, and no export was named with --api)\n";
    }
    text
}

fn line([name, place, state]: [&str; 3], numbers: &[String; 10]) -> String {
    let numbers: String = numbers
        .iter()
        .map(|number| format!(" {number:>8}"))
        .collect();
    format!("{name:<12} {place:<24} {state:<12}{numbers}\n")
}

/// The alternate screen with unbuffered key input. Dropping it restores the terminal.
struct Screen {
    _keys: KeyByKey,
}

impl Screen {
    fn begin(tell: Sender<()>) -> Result<Self, Failure> {
        let keys =
            KeyByKey::begin().map_err(|error| Failure::io(format!("the terminal: {error}")))?;
        std::thread::spawn(move || {
            for key in std::io::stdin().lock().bytes() {
                if matches!(key, Ok(b'q' | b'Q' | 3 | 27) | Err(_)) {
                    break;
                }
            }
            let _it_is_over = tell.send(());
        });
        print(ENTER)?;
        Ok(Self { _keys: keys })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Err(failure) = print(LEAVE) {
            say(failure);
        }
    }
}

/// Enter and leave the alternate screen, with a hidden cursor. Source: ECMA-48 and xterm's control
/// sequences.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Move to the first line and clear the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";
