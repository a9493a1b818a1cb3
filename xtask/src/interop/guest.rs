//! One guest from start to end: a machine that QEMU emulates, without network, heard through its
//! serial line.
//!
//! Knows QEMU's words and the lines of `init.sh`; does not know what the script does. A machine
//! that is silent for too long is ended.

use super::attached::Attached;
use super::packages::Kernel;
use super::script::Script;
use crate::process::{command, lines_of};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How a script ended in its guest.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Why it did not pass, if it did not.
    pub(super) failure: Option<String>,
    /// What the script printed, and what the kernel said if it failed.
    pub(super) output: Vec<String>,
    /// From the start of the machine to its end.
    pub(super) time: Duration,
    /// The machine ended by itself before its script began: a fault of the emulation.
    pub(super) never_began: bool,
}

impl Outcome {
    /// Of a machine that did not come to run.
    pub(super) fn failed(failure: String) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }
}

/// The machine: two processors, so that there are two queues, and memory for the image, a disk and
/// a cache. Emulated even where /dev/kvm is: what it can do differs from machine to machine, and
/// QEMU ends where it cannot. Without pages of five levels: QEMU 7.2 emulates them so that Linux
/// 6.12 does not start.
const MACHINE: &str = "-cpu max,la57=off -m 1536 -nographic -no-reboot -nic none -monitor none";
const PROCESSORS: &str = "-accel tcg,thread=multi -smp 2";
/// One processor, and a clock that counts its instructions. When it sleeps, the clock goes to the
/// next timer.
const COUNTING_PROCESSOR: &str = "-accel tcg,thread=single -smp 1 -icount shift=0,sleep=off";
/// The same memory, such that another process can have it too.
const SHARED_MEMORY: &str = "-object memory-backend-memfd,id=memory,size=1536M,share=on \
                             -machine memory-backend=memory";
/// The serial line carries what the script prints: the kernel is silent there unless it dies.
const KERNEL_WORDS: &str = "console=ttyS0 loglevel=0 panic=-1 mitigations=off random.trust_cpu=on";

/// Boots the machine with this first file system, and with the disk that is attached, if there is
/// one; waits until it ends, or has taken too long, and does meanwhile what it asks for.
pub(super) fn run(
    kernel: &Kernel,
    image: &Path,
    mut disk: Option<&mut Attached>,
    script: &Script,
) -> Outcome {
    let started = Instant::now();
    let mut qemu = command("qemu-system-x86_64");
    let processors = match script.counts_instructions {
        true => COUNTING_PROCESSOR,
        false => PROCESSORS,
    };
    qemu.args(MACHINE.split(' ')).args(processors.split(' '));
    qemu.arg("-initrd").arg(image);
    qemu.arg("-kernel").arg(kernel.image());
    let mut words = KERNEL_WORDS.to_owned();
    if let Some(disk) = &disk {
        let socket = disk.socket();
        let socket = format!("socket,id=disk,reconnect=1,path={}", socket.display());
        qemu.args(SHARED_MEMORY.split(' '));
        qemu.args(["-chardev", &socket]);
        qemu.args(["-device", "vhost-user-blk-pci,chardev=disk"]);
        words += " root=/dev/vda";
    }
    qemu.args(["-append", &words]).stdin(Stdio::null());
    let child = qemu.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            return Outcome::failed(format!("cannot start qemu-system-x86_64: {error}"));
        }
    };
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let output = output.expect("it was asked for");
    let lines = lines_of(output.chain(errors.expect("it was asked for")));
    let mut heard = Heard::default();
    let limit = Duration::from_secs(script.seconds);
    let until = started + limit;
    let in_time = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let asked = heard.line(line.trim_end().to_owned());
                if let Some(Err(failure)) = asked.map(|asked| obey(disk.as_deref_mut(), &asked)) {
                    heard.refused = Some(failure);
                    break true;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    // It has ended by itself, or is ended now.
    let _ended = child.kill();
    let _status = child.wait();
    let late = format!("it did not end within {} s", limit.as_secs());
    heard.outcome((!in_time).then_some(late), started.elapsed())
}

fn obey(disk: Option<&mut Attached>, asked: &str) -> Result<(), String> {
    match disk {
        Some(disk) => disk.obey(asked),
        None => Err(format!("`{asked}`: this guest has no disk of ours")),
    }
}

/// What a guest has said so far.
#[derive(Default)]
struct Heard {
    output: Vec<String>,
    complaints: Vec<String>,
    kernel: Vec<String>,
    result: Option<String>,
    has_begun: bool,
    /// Why something that it asked for was not done.
    refused: Option<String>,
}

impl Heard {
    /// Takes a line. What is to be done outside of the guest, if the line asks for that.
    fn line(&mut self, line: String) -> Option<String> {
        // The firmware clears the screen without ending its line.
        let line = match line.find("@@") {
            Some(at) => line[at..].to_owned(),
            None => line,
        };
        if line == "@@begin" {
            // What the firmware and the first program said is of no interest any more.
            self.output.clear();
            self.has_begun = true;
        } else if let Some(result) = line.strip_prefix("@@result ") {
            self.result = Some(result.to_owned());
        } else if let Some(complaint) = line.strip_prefix("@@log ") {
            self.complaints.push(complaint.to_owned());
        } else if let Some(said) = line.strip_prefix("@@dmesg ") {
            self.kernel.push(said.to_owned());
        } else if let Some(asked) = line.strip_prefix("@@outside ") {
            return Some(asked.to_owned());
        } else if line != "@@end" {
            self.output.push(line);
        }
        None
    }

    fn outcome(self, late: Option<String>, time: Duration) -> Outcome {
        let never_began = late.is_none() && !self.has_begun && self.refused.is_none();
        let failure = match self.result.as_deref() {
            _ if self.refused.is_some() => self.refused,
            Some("0") if self.complaints.is_empty() => None,
            Some("0") => Some("the kernel complained".to_owned()),
            Some(code) => Some(format!("the script ended with {code}")),
            None => Some(late.unwrap_or_else(|| "the machine ended before the script".to_owned())),
        };
        let mut output = self.output;
        let kernel = self.kernel.into_iter().chain(self.complaints);
        output.extend(kernel.map(|line| format!("kernel: {line}")));
        Outcome {
            failure,
            output,
            time,
            never_began,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> (Option<String>, Vec<String>) {
        let mut heard = Heard::default();
        for line in lines {
            assert_eq!(heard.line((*line).to_owned()), None);
        }
        let outcome = heard.outcome(None, Duration::ZERO);
        (outcome.failure, outcome.output)
    }

    #[test]
    fn a_script_passes_when_it_ends_well_and_the_kernel_is_silent() {
        let (failure, output) = outcome(&["firmware", "@@begin", "hello", "@@result 0", "@@end"]);
        assert_eq!((failure, output), (None, vec!["hello".to_owned()]));
        let (failure, output) = outcome(&["@@log <4>nvme nvme0: duplicate IDs", "@@result 0"]);
        assert!(failure.is_some_and(|why| why.contains("complained")));
        assert_eq!(output, ["kernel: <4>nvme nvme0: duplicate IDs"]);
        let (failure, output) = outcome(&["no device", "@@dmesg nvme: refused", "@@result 7"]);
        assert!(failure.is_some_and(|why| why.ends_with("ended with 7")));
        assert_eq!(output, ["no device", "kernel: nvme: refused"]);
        let (failure, _) = outcome(&["Kernel panic - not syncing"]);
        assert!(failure.is_some_and(|why| why.contains("before the script")));
    }

    #[test]
    fn a_machine_that_ended_before_its_script_began_is_known() {
        let never_began = |lines: &[&str], late: Option<&str>| {
            let mut heard = Heard::default();
            for line in lines {
                heard.line((*line).to_owned());
            }
            let late = late.map(str::to_owned);
            heard.outcome(late, Duration::ZERO).never_began
        };
        assert!(never_began(&["firmware"], None));
        assert!(!never_began(&["firmware"], Some("too long")));
        assert!(!never_began(&["firmware", "@@begin", "Kernel panic"], None));
    }

    #[test]
    fn what_a_guest_asks_for_is_no_output() {
        let mut heard = Heard::default();
        let asked = heard.line("@@outside grow 10".to_owned());
        assert_eq!(asked.as_deref(), Some("grow 10"));
        assert!(heard.output.is_empty());
    }
}
