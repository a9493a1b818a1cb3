//! Our target and our host: the binary that was built, with the options that a user would give.

use super::Programs;
use super::processes::run_time_ns;
use super::side::{DISK_BYTES, Disk, HOST_CPU, Measured, Side, TARGET_CPU, runtime};
use crate::process::{Background, command, output};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const FILL_BLOCK_BYTES: u32 = 128 << 10;
/// How long a program may take until it serves.
pub(super) const START_TIME_MAX: Duration = Duration::from_secs(20);

/// `fabrix serve` with one disk, pinned, on a free port.
pub(super) struct Target {
    process: Background,
    nvme: String,
    /// Where the client of the side finds the disk.
    uri: String,
    disk: Disk,
    program: String,
}

impl Target {
    /// Starts it; `program` is the binary, ours or another build of it.
    pub(super) fn start(program: &Path, side: &Side, programs: &Programs) -> Result<Self, String> {
        let program = program.to_string_lossy().into_owned();
        let mut serve = command(&program);
        serve.args(["serve", &programs.disk(side.disk)]);
        serve.args(["--listen", "nvme+tcp://127.0.0.1:0"]);
        // Older builds, which ours may be compared with, do not know it.
        let over_iscsi = side.client.speaks_iscsi();
        if over_iscsi {
            serve.args(["--listen", "iscsi://127.0.0.1:0"]);
        }
        serve.args(["--cores", TARGET_CPU, "-o", "json"]);
        add_spin(&mut serve, side);
        let mut process = Background::start(&mut serve)?;
        let output = process.0.stdout.take().expect("the output was asked for");
        let (sender, receiver) = mpsc::channel();
        // Reads to the end, so that the target never waits for somebody to listen.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens any more once the address is known.
                let _ = sender.send(line);
            }
        });
        let printed = wait_for_json(&receiver)?;
        let nvme = address(&printed, "uri")?;
        let uri = if over_iscsi {
            address(&printed, "iscsi_uri")?
        } else {
            nvme.clone()
        };
        Ok(Self {
            process,
            nvme,
            uri,
            disk: side.disk,
            program,
        })
    }

    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    pub(super) fn process(&self) -> &Background {
        &self.process
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Writes a RAM disk once from end to end: memory that was never written is one page of zeroes,
    /// always in the cache, and the first write of a page waits for the kernel, in a virtual
    /// machine even for the hypervisor, to find one. Files were filled when they were made.
    pub(super) fn fill(&self) -> Result<(), String> {
        match self.disk {
            Disk::Ram => fill(&self.program, &self.nvme),
            _ => Ok(()),
        }
    }

    /// Lets our host loose on it.
    pub(super) fn measure(&self, side: &Side, seconds: u32) -> Result<Measured, String> {
        let _heavy = side.beside.then(|| self.heavy()).transpose()?;
        let (before, started) = (run_time_ns(self.pid())?, Instant::now());
        let mut measured = bench(Path::new(&self.program), &self.uri, side, &runtime(seconds))?;
        let used = Duration::from_nanos(run_time_ns(self.pid())?.saturating_sub(before));
        measured.target_cpu = used.as_secs_f64() / started.elapsed().as_secs_f64();
        measured.raw["target_cpu"] = measured.target_cpu.into();
        Ok(measured)
    }

    /// A second host that asks for much. It has to share the processor of the one that is measured,
    /// so it gets only what that one leaves: what is seen is the target's doing.
    fn heavy(&self) -> Result<Background, String> {
        let mut bench = command("chrt");
        bench.args(["--idle", "0", &self.program, "bench", &self.uri]);
        bench.args(["--cores", HOST_CPU, "--rw", "randread", "--bs", "128k"]);
        bench.args(["--iodepth", "8", "--runtime", "1h", "--spin", "never"]);
        Background::start(&mut bench)
    }
}

/// Writes a whole disk once.
pub(super) fn fill(program: &str, uri: &str) -> Result<(), String> {
    let blocks = (DISK_BYTES / u64::from(FILL_BLOCK_BYTES)).to_string();
    let mut bench = command(program);
    bench.args(["bench", uri, "--cores", HOST_CPU, "--rw", "write"]);
    bench.args(["--bs", &FILL_BLOCK_BYTES.to_string(), "--iodepth", "8"]);
    bench.args(["--number-ios", &blocks, "--allow-write", "-o", "json"]);
    let text = output(&mut bench)?;
    let result = super::side::parse_json("`fabrix bench`", &text)?;
    let written = result.pointer("/jobs/0/write/io_bytes");
    let written = written.and_then(Value::as_u64).unwrap_or(0);
    if written < DISK_BYTES {
        return Err(format!("filling the disk wrote only {written} bytes"));
    }
    Ok(())
}

/// `fabrix bench` with a side's load; `time` are the words that say how long.
pub(super) fn bench(
    program: &Path,
    uri: &str,
    side: &Side,
    time: &[String],
) -> Result<Measured, String> {
    let mut bench = command(&program.to_string_lossy());
    bench.args(["bench", uri, "--cores", HOST_CPU, "-o", "json"]);
    bench.args(["--rw", side.access.fio(), "--allow-write"]);
    bench.args(["--rwmixread", &side.access.percent_read().to_string()]);
    bench.args(["--bs", &side.block_bytes.to_string()]);
    bench.args(["--iodepth", &side.depth.to_string()]);
    if side.data_digest {
        bench.arg("--data-digest");
    }
    if let Some(iops) = side.iops {
        // What is asked is what the target's sleep costs. A host that slept too would add its own:
        // an alarm for every request that is due, and a waking for every answer.
        bench.args(["--rate-iops", &iops.to_string(), "--spin", "always"]);
    } else {
        add_spin(&mut bench, side);
    }
    let text = output(bench.args(time))?;
    Measured::from_fio("`fabrix bench`", &text, side.access)
}

/// The word is left out where it says nothing new: older builds do not know it.
fn add_spin(command: &mut Command, side: &Side) {
    if side.spin != super::side::Spin::Auto {
        command.args(["--spin", side.spin.word()]);
    }
}

/// The target prints one JSON object; it may take several lines.
fn wait_for_json(lines: &mpsc::Receiver<String>) -> Result<Value, String> {
    let mut text = String::new();
    loop {
        let Ok(line) = lines.recv_timeout(START_TIME_MAX) else {
            return Err(format!(
                "`fabrix serve` did not print its address; it printed: {text}"
            ));
        };
        text.push_str(&line);
        text.push('\n');
        if let Ok(value) = serde_json::from_str(&text) {
            return Ok(value);
        }
    }
}

/// An address of the first export.
fn address(printed: &Value, key: &str) -> Result<String, String> {
    let found = printed.pointer(&format!("/exports/0/{key}"));
    let found = found.and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| format!("`fabrix serve` names no {key}: {printed}"))
}

/// The port in an address.
pub(super) fn port_of(uri: &str) -> Result<u16, String> {
    let (_, rest) = uri.split_once("://").unwrap_or(("", uri));
    let authority = rest.split('/').next().unwrap_or("");
    let port = authority
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    port.ok_or_else(|| format!("no port in {uri}"))
}

#[cfg(test)]
mod tests {
    use super::super::side::{Access, Client, Server, Spin};
    use super::super::started::Started;
    use super::*;

    const SIDE: Side = Side {
        server: Server::Fabrix,
        client: Client::Bench,
        disk: Disk::Ram,
        access: Access::Mixed { percent_read: 30 },
        block_bytes: 8192,
        depth: 32,
        spin: Spin::Never,
        data_digest: true,
        iops: Some(1000),
        beside: false,
    };

    #[test]
    fn finds_the_addresses_in_an_object_of_several_lines() {
        let (sender, receiver) = mpsc::channel();
        for line in [
            "{",
            r#""exports": [{"disk": "ram:1G", "uri": "nvme+tcp://127.0.0.1:4420/nqn/1"}]"#,
            "}",
        ] {
            sender.send(line.to_owned()).expect("the receiver lives");
        }
        let printed = wait_for_json(&receiver).expect("an object");
        assert_eq!(
            address(&printed, "uri"),
            Ok("nvme+tcp://127.0.0.1:4420/nqn/1".to_owned())
        );
        assert!(address(&printed, "iscsi_uri").is_err());
    }

    #[test]
    fn a_target_that_ends_before_it_serves_is_an_error() {
        let (sender, receiver) = mpsc::channel();
        sender
            .send("no such disk".to_owned())
            .expect("the receiver lives");
        drop(sender);
        assert!(
            wait_for_json(&receiver)
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
bench) echo '{"jobs":[{"read":{"iops":5},"write":{"iops":7,"io_bytes":2000000000}}]}' ;;
esac
"#;

    /// Written by a shell: as long as one of our own threads holds the file open, the kernel
    /// refuses to run it.
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
        let programs = Programs::in_folder(&folder, &folder);
        write_stand_in(&programs.fabrix);
        let started = Instant::now();
        let ours = Started::start(&SIDE, &programs).and_then(|mut started| started.measure(7));
        let log = std::fs::read_to_string(folder.join("fabrix.log")).expect("what was asked");
        std::fs::remove_dir_all(&folder).expect("removed again");
        let iops = ours.expect("it answers").iops;
        assert!((iops - 12.0).abs() < 1e-9, "{iops}");
        let asked: Vec<&str> = log.lines().collect();
        assert_eq!(asked.len(), 3, "{log}");
        assert!(asked[0].starts_with("serve ram:1G --listen nvme+tcp://127.0.0.1:0"));
        assert!(
            asked[0].contains("--cores 0") && asked[0].contains("--spin never"),
            "{log}"
        );
        assert!(asked[1].contains("--rw write"), "{}", asked[1]);
        for word in [
            "--rw randrw",
            "--rwmixread 30",
            "--data-digest",
            "--rate-iops 1000 --spin always",
            "--runtime 7",
        ] {
            assert!(asked[2].contains(word), "{word}: {log}");
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the target was not waited for"
        );
    }
}
