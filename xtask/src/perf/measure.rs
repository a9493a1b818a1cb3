//! Runs the two sides of a comparison as a user would: the binary, its options, its JSON.
//!
//! Each measurement starts its own target and ends it, so that nothing of one side takes a processor while the other
//! is measured: a polling target left running takes half of the ceiling's.

use super::machine::{connections_at, run_time_ns};
use super::rows::Load;
use crate::process::{Background, command, output};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;
const DISK: &str = "ram:1G";
const TARGET_CPU: &str = "0";
const HOST_CPU: &str = "1";
const FILL_BLOCK_BYTES: u32 = 128 << 10;
const IDLE_TIME: Duration = Duration::from_secs(5);
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// Where the two programs are.
pub(super) struct Programs {
    fabrix: PathBuf,
    ceiling: PathBuf,
}

impl Programs {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            fabrix: folder.join("fabrix"),
            ceiling: folder.join("examples/ceiling"),
        }
    }

    fn fabrix(&self) -> Command {
        command(&self.fabrix.to_string_lossy())
    }
}

impl Load {
    /// Runs our target and our host with this load; returns what the host printed.
    pub(super) fn measure_ours(self, programs: &Programs, seconds: u32) -> Result<Value, String> {
        let target = Target::start(programs)?;
        let (direction, block_bytes, depth) = match self {
            Self::Rate {
                direction,
                block_bytes,
                depth,
            } => (direction, block_bytes, depth),
            Self::Latency {
                direction,
                block_bytes,
            } => (direction, block_bytes, 1),
            Self::Idle { connections } => return target.idle(programs, connections),
        };
        target.fill(programs)?;
        target.bench(
            programs,
            direction.fio(),
            block_bytes,
            depth,
            &["--ramp", "1", "--runtime", &seconds.to_string()],
        )
    }

    /// Runs bare sockets with the same load; returns what they printed. Idle connections have nothing to compare with.
    pub(super) fn measure_ceiling(
        self,
        programs: &Programs,
        seconds: u32,
    ) -> Result<Value, String> {
        let (direction, block_bytes, depth) = match self {
            Self::Rate {
                direction,
                block_bytes,
                depth,
            } => (direction, block_bytes, depth),
            Self::Latency {
                direction,
                block_bytes,
            } => (direction, block_bytes, 1),
            Self::Idle { .. } => return Ok(Value::Null),
        };
        let mut ceiling = command(&programs.ceiling.to_string_lossy());
        ceiling.args([depth.to_string(), block_bytes.to_string()]);
        ceiling.args([direction.word(), "spin", &seconds.to_string()]);
        parse_json("the ceiling", &output(&mut ceiling)?)
    }

    /// The one number that the goal is about.
    pub(super) fn figure(self, ours: &Value, ceiling: &Value) -> Result<f64, String> {
        match self {
            Self::Rate { direction, .. } => {
                let path = format!("/jobs/0/{}/iops", direction.word());
                Ok(number(ours, &path)? / number(ceiling, "/iops")?)
            }
            Self::Latency { direction, .. } => {
                let path = format!("/jobs/0/{}/clat_ns/percentile/50.000000", direction.word());
                Ok(number(ours, &path)? / 1000.0 / number(ceiling, "/p50_us")?)
            }
            Self::Idle { .. } => number(ours, "/cpu_share"),
        }
    }
}

/// A positive number at this place (RFC 6901); zero would be a broken measurement, except for an idle processor.
fn number(value: &Value, path: &str) -> Result<f64, String> {
    let found = value.pointer(path).and_then(Value::as_f64);
    let possible = |number: &f64| *number > 0.0 || (path == "/cpu_share" && *number >= 0.0);
    found
        .filter(possible)
        .ok_or_else(|| format!("no usable number at {path} in {value}"))
}

fn parse_json(who: &str, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{who} printed no JSON ({error}): {text}"))
}

/// `fabrix serve` with a RAM disk, pinned, on a free port.
struct Target {
    process: Background,
    uri: String,
}

impl Target {
    fn start(programs: &Programs) -> Result<Self, String> {
        let mut serve = programs.fabrix();
        serve.args([
            "serve",
            DISK,
            "--listen",
            "nvme+tcp://127.0.0.1:0",
            "--cores",
            TARGET_CPU,
        ]);
        let mut process = Background::start(serve.args(["-o", "json"]))?;
        let output = process.0.stdout.take().expect("the output was asked for");
        let (sender, receiver) = mpsc::channel();
        // Reads to the end, so that the target never waits for somebody to listen.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens any more once the address is known.
                let _ = sender.send(line);
            }
        });
        let uri = wait_for_uri(&receiver)?;
        Ok(Self { process, uri })
    }

    /// Writes the whole disk once: memory that was never written is one page of zeroes, always in the cache, and the
    /// first write of a page waits for the kernel, in a virtual machine even for the hypervisor, to find one.
    fn fill(&self, programs: &Programs) -> Result<(), String> {
        let blocks = (GIB / u64::from(FILL_BLOCK_BYTES)).to_string();
        let result = self.bench(
            programs,
            "write",
            FILL_BLOCK_BYTES,
            8,
            &["--number-ios", &blocks],
        )?;
        let written = result
            .pointer("/jobs/0/write/io_bytes")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        if written < GIB {
            return Err(format!("filling the disk wrote only {written} bytes"));
        }
        Ok(())
    }

    fn bench(
        &self,
        programs: &Programs,
        rw: &str,
        block_bytes: u32,
        depth: u32,
        more: &[&str],
    ) -> Result<Value, String> {
        let mut bench = programs.fabrix();
        bench.args([
            "bench", &self.uri, "--cores", HOST_CPU, "--rw", rw, "-o", "json",
        ]);
        bench.args([
            "--bs",
            &block_bytes.to_string(),
            "--iodepth",
            &depth.to_string(),
        ]);
        parse_json("`fabrix bench`", &output(bench.args(more))?)
    }

    /// Connects and asks for nothing: what does the target use meanwhile?
    fn idle(&self, programs: &Programs, connections: u32) -> Result<Value, String> {
        let hold = (START_TIME_MAX + IDLE_TIME * 2).as_secs().to_string();
        let mut bench = programs.fabrix();
        bench.args(["bench", &self.uri, "--cores", HOST_CPU, "--hold", &hold]);
        let _host = Background::start(bench.args(["--numjobs", &connections.to_string()]))?;
        self.wait_for_connections(connections as usize)?;
        let (start_ns, started) = (run_time_ns(self.process.0.id())?, Instant::now());
        thread::sleep(IDLE_TIME);
        let used = Duration::from_nanos(run_time_ns(self.process.0.id())?.saturating_sub(start_ns));
        Ok(json!({ "cpu_share": used.as_secs_f64() / started.elapsed().as_secs_f64() }))
    }

    /// Until so many connections stand and no more come: a host opens one for administration besides.
    fn wait_for_connections(&self, at_least: usize) -> Result<(), String> {
        let port = port_of(&self.uri)?;
        let deadline = Instant::now() + START_TIME_MAX;
        let (mut before, mut quiet_rounds) = (0, 0);
        while Instant::now() < deadline {
            let now = connections_at(port)?;
            quiet_rounds = if now == before && now >= at_least {
                quiet_rounds + 1
            } else {
                0
            };
            if quiet_rounds == 5 {
                return Ok(());
            }
            before = now;
            thread::sleep(Duration::from_millis(200));
        }
        Err(format!(
            "only {before} of {at_least} connections came to {}",
            self.uri
        ))
    }
}

/// The target prints one JSON object; it may take several lines.
fn wait_for_uri(lines: &mpsc::Receiver<String>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        let Ok(line) = lines.recv_timeout(START_TIME_MAX) else {
            return Err(format!(
                "`fabrix serve` did not print its address; it printed: {text}"
            ));
        };
        text.push_str(&line);
        text.push('\n');
        let uri = serde_json::from_str(&text)
            .ok()
            .and_then(|value: Value| find_uri(&value));
        if let Some(uri) = uri {
            return Ok(uri);
        }
    }
}

/// The first address of an export anywhere in the object.
fn find_uri(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.starts_with("nvme+tcp://") => Some(text.clone()),
        Value::Array(values) => values.iter().find_map(find_uri),
        Value::Object(fields) => fields
            .get("uri")
            .and_then(find_uri)
            .or_else(|| fields.values().find_map(find_uri)),
        _ => None,
    }
}

fn port_of(uri: &str) -> Result<u16, String> {
    let (_, rest) = uri.split_once("://").unwrap_or(("", uri));
    let authority = rest.split('/').next().unwrap_or("");
    let port = authority
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    port.ok_or_else(|| format!("no port in {uri}"))
}

#[cfg(test)]
mod tests {
    use super::super::rows::Direction;
    use super::*;

    const RATE: Load = Load::Rate {
        direction: Direction::Read,
        block_bytes: 4096,
        depth: 32,
    };
    const LATENCY: Load = Load::Latency {
        direction: Direction::Write,
        block_bytes: 4096,
    };

    #[test]
    fn a_rate_is_a_ratio_of_requests_per_second() {
        let ours = json!({ "jobs": [{ "read": { "iops": 300.0 } }] });
        assert_eq!(RATE.figure(&ours, &json!({ "iops": 600 })), Ok(0.5));
    }

    #[test]
    fn a_latency_is_a_ratio_of_medians_in_the_same_unit() {
        let percentile = json!({ "50.000000": 15_000 });
        let ours = json!({ "jobs": [{ "write": { "clat_ns": { "percentile": percentile } } }] });
        assert_eq!(LATENCY.figure(&ours, &json!({ "p50_us": 10.0 })), Ok(1.5));
    }

    #[test]
    fn a_missing_or_zero_number_is_no_figure() {
        let ours = json!({ "jobs": [{ "read": { "iops": 0 } }] });
        assert!(RATE.figure(&ours, &json!({ "iops": 600 })).is_err());
        assert!(RATE.figure(&json!({}), &json!({ "iops": 600 })).is_err());
    }

    #[test]
    fn finds_the_address_in_whatever_object_the_target_prints() {
        let (sender, receiver) = mpsc::channel();
        for line in [
            "{",
            r#""exports": [{"disk": "ram:1G", "uri": "nvme+tcp://127.0.0.1:4420/nqn/1"}]"#,
            "}",
        ] {
            sender.send(line.to_owned()).expect("the receiver lives");
        }
        assert_eq!(
            wait_for_uri(&receiver),
            Ok("nvme+tcp://127.0.0.1:4420/nqn/1".to_owned())
        );
    }

    #[test]
    fn a_target_that_ends_before_it_serves_is_an_error() {
        let (sender, receiver) = mpsc::channel();
        sender
            .send("no such disk".to_owned())
            .expect("the receiver lives");
        drop(sender);
        assert!(
            wait_for_uri(&receiver)
                .expect_err("it ended")
                .contains("no such disk")
        );
    }

    #[test]
    fn reads_the_port_of_an_address() {
        assert_eq!(port_of("nvme+tcp://127.0.0.1:4420/nqn.x:y/1"), Ok(4420));
        assert!(port_of("nvme+tcp://127.0.0.1/nqn.x:y").is_err());
    }

    /// A program with our words that answers at once and notes how it was asked.
    const STAND_IN: &str = r#"#!/bin/sh
echo "$@" >> "$0.log"
case "$1" in
serve) echo '{"exports":'; echo '[{"uri":"nvme+tcp://127.0.0.1:1/nqn/1"}]}'; exec sleep 60 ;;
bench) echo '{"jobs":[{"read":{"iops":5},"write":{"io_bytes":2000000000}}]}' ;;
esac
"#;

    /// Written by a shell: as long as one of our own threads holds the file open, the kernel refuses to run it.
    fn write_stand_in(path: &Path) {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "cat > \"$0\" && chmod +x \"$0\""])
            .arg(path);
        let mut shell = shell
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut input = shell.stdin.take().expect("asked for");
        std::io::Write::write_all(&mut input, STAND_IN.as_bytes()).expect("the shell reads");
        drop(input);
        assert!(shell.wait().expect("it ends").success());
    }

    #[test]
    fn fills_the_disk_before_it_measures_and_ends_the_target() {
        let folder = std::env::temp_dir().join(format!("xtask-perf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the stand-in");
        let programs = Programs::in_folder(&folder);
        write_stand_in(&programs.fabrix);
        let started = Instant::now();
        let ours = RATE.measure_ours(&programs, 7);
        let log = std::fs::read_to_string(folder.join("fabrix.log")).expect("what was asked");
        std::fs::remove_dir_all(&folder).expect("removed again");
        assert_eq!(
            ours.and_then(|ours| number(&ours, "/jobs/0/read/iops")),
            Ok(5.0)
        );
        let asked: Vec<&str> = log.lines().collect();
        assert_eq!(asked.len(), 3, "{log}");
        assert!(asked[0].starts_with("serve ram:1G --listen nvme+tcp://127.0.0.1:0 --cores 0"));
        assert!(asked[1].contains("--rw write"), "{}", asked[1]);
        assert!(
            asked[2].contains("--rw randread") && asked[2].contains("--runtime 7"),
            "{log}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the target was waited for"
        );
    }
}
