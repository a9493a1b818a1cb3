//! Our target and our host: the binary that was built, with the options that a user would give.

use super::noise::run_time_ns;
use super::side::{DISK_BYTES, Disk, HOST_CPU, Measured, Side, Spin, parse_json};
use super::{Programs, START_TIME_MAX};
use crate::process::{Background, command, output};
use serde_json::Value;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const FILL_BLOCK_BYTES: u64 = 128 << 10;

/// `fabrix serve` with one disk, pinned, on a free port.
pub(super) struct Target {
    pub(super) process: Background,
    /// Where the client of the side finds the disk.
    pub(super) uri: String,
    disk: Disk,
}

impl Target {
    pub(super) fn start(side: &Side, programs: &Programs) -> Result<Self, String> {
        let over_iscsi = side.client.speaks_iscsi();
        let mut serve = command(&programs.fabrix);
        serve.args([
            "serve",
            &programs.disk(side.disk),
            "--cores",
            &side.cores(0),
        ]);
        serve.args(["-o", "json", "--listen", "nvme+tcp://127.0.0.1:0"]);
        if over_iscsi {
            serve.args(["--listen", "iscsi://127.0.0.1:0"]);
        }
        add_spin(&mut serve, side.spin);
        let mut process = Background::start(&mut serve)?;
        let printed = wait_for_json(&process.lines())?;
        let key = if over_iscsi { "iscsi_uri" } else { "uri" };
        let uri = printed["exports"][0][key].as_str();
        let uri = uri.ok_or_else(|| format!("`fabrix serve` names no {key}: {printed}"))?;
        Ok(Self {
            process,
            uri: uri.to_owned(),
            disk: side.disk,
        })
    }

    /// Writes a RAM disk once from end to end: memory that was never written is one page of zeroes,
    /// always in the cache, and the first write of a page waits for the kernel to find one. Files
    /// were filled when they were made.
    pub(super) fn fill(&self, programs: &Programs) -> Result<(), String> {
        match self.disk {
            Disk::Ram => fill(programs, &self.uri),
            _ => Ok(()),
        }
    }

    /// Measures our host at it, and the target's processor time meanwhile.
    pub(super) fn measure(
        &self,
        side: &Side,
        programs: &Programs,
        seconds: u32,
    ) -> Result<Measured, String> {
        let _heavy = side.beside.then(|| self.heavy(programs)).transpose()?;
        let pid = self.process.0.id();
        let (before, started) = (run_time_ns(pid)?, Instant::now());
        let mut measured = bench(programs, &self.uri, side, seconds)?;
        let used = Duration::from_nanos(run_time_ns(pid)?.saturating_sub(before));
        let cpu = used.as_secs_f64() / started.elapsed().as_secs_f64();
        measured.add("cpu", cpu);
        measured.raw["target_cpu"] = cpu.into();
        Ok(measured)
    }

    /// A second host that asks for much. It has to share the processor of the one that is measured,
    /// so it gets only what that one leaves: what is seen is the target's doing.
    fn heavy(&self, programs: &Programs) -> Result<Background, String> {
        let mut bench = command("chrt");
        bench.args(["--idle", "0"]).arg(&programs.fabrix);
        bench.args(["bench", &self.uri, "--cores", HOST_CPU, "--bs", "128k"]);
        bench.args(["--iodepth", "8", "--runtime", "1h", "--spin", "never"]);
        Background::start(&mut bench)
    }
}

/// Writes a whole disk once.
pub(super) fn fill(programs: &Programs, uri: &str) -> Result<(), String> {
    let mut bench = command(&programs.fabrix);
    bench.args(["bench", uri, "--cores", HOST_CPU, "--rw", "write"]);
    bench.args(["--bs", &FILL_BLOCK_BYTES.to_string(), "--iodepth", "8"]);
    bench.args(["--number-ios", &(DISK_BYTES / FILL_BLOCK_BYTES).to_string()]);
    bench.args(["--allow-write", "-o", "json"]);
    let result = parse_json("`fabrix bench`", &output(&mut bench)?)?;
    let written = result.pointer("/jobs/0/write/io_bytes");
    let written = written.and_then(Value::as_u64).unwrap_or(0);
    if written < DISK_BYTES {
        return Err(format!("filling the disk wrote only {written} bytes"));
    }
    Ok(())
}

/// `fabrix bench` with a side's load, after a second of warming up.
pub(super) fn bench(
    programs: &Programs,
    uri: &str,
    side: &Side,
    seconds: u32,
) -> Result<Measured, String> {
    let mut bench = command(&programs.fabrix);
    bench.args(["bench", uri, "--cores", &side.cores(1), "-o", "json"]);
    bench.args(["--numjobs", &side.shards.to_string()]);
    bench.args(["--rw", side.access.fio(), "--allow-write"]);
    bench.args(["--rwmixread", &side.access.percent_read().to_string()]);
    bench.args(["--bs", &side.block_bytes.to_string()]);
    bench.args(["--iodepth", &side.depth.to_string()]);
    bench.args(["--ramp", "1", "--runtime", &seconds.to_string()]);
    if side.data_digest {
        bench.arg("--data-digest");
    }
    if let Some(iops) = side.iops {
        // What is asked is what the target's sleep costs. A host that slept too would add its own.
        bench.args(["--rate-iops", &iops.to_string()]);
        add_spin(&mut bench, Spin::Always);
    } else {
        add_spin(&mut bench, side.spin);
    }
    Measured::from_fio("`fabrix bench`", &output(&mut bench)?, side.access)
}

fn add_spin(command: &mut Command, spin: Spin) {
    command.args(["--spin", spin.word()]);
}

/// The target prints one JSON object, which may take several lines.
fn wait_for_json(lines: &Receiver<String>) -> Result<Value, String> {
    let mut text = String::new();
    while let Ok(line) = lines.recv_timeout(START_TIME_MAX) {
        text += &line;
        text.push('\n');
        if let Ok(value) = serde_json::from_str(&text) {
            return Ok(value);
        }
    }
    Err(format!(
        "`fabrix serve` did not print its address; it printed: {text}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_target_that_ends_before_it_serves_is_told_with_what_it_printed() {
        let printed = |lines: &[&str]| {
            let (sender, receiver) = mpsc::channel();
            for line in lines {
                sender.send((*line).to_owned()).expect("the receiver lives");
            }
            drop(sender);
            wait_for_json(&receiver)
        };
        let failure = printed(&["no such disk"]).expect_err("it ended");
        assert!(failure.contains("no such disk"), "{failure}");
        let object = printed(&["{", r#""exports": []"#, "}"]);
        assert!(object.expect("an object")["exports"].is_array());
    }
}
