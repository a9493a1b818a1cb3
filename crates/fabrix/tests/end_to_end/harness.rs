//! Runs the program and waits for what it says, never longer than [`BOUND`].
//!
//! Knows processes, pipes and files; knows of the program only that `serve -o json` tells its
//! exports in one line.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing in these tests takes longer, unless something hangs.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
/// The NQN of targets whose test has none of its own: it stays when a target starts again on
/// another port.
pub(crate) const NQN: &str = "nqn.2026-01.io.fabrix:disks";
/// The same for iSCSI.
pub(crate) const IQN: &str = "iqn.2026-01.io.fabrix:disks";

/// How a process ended and what it said.
pub(crate) struct Ended {
    /// The exit code; -1 when a signal ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// Stdout as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON: {error}\n{self}"))
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Checks that stderr says all of this.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is missing:\n{self}");
        }
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "exit code {} after {:?}", self.code, self.took)?;
        writeln!(
            f,
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout, self.stderr
        )
    }
}

/// A process that runs. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    began: Instant,
    stdout: Heard,
    stderr: Heard,
}

impl Running {
    /// Starts the program.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
        Self::spawn(command.args(args)).expect("the program that was just built can be started")
    }

    /// Starts a command with both of its outputs heard.
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Self> {
        // State that no test asks for stays away from the machine's own.
        let command = command
            .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = Heard::from(child.stdout.take().expect("it was asked for"));
        let stderr = Heard::from(child.stderr.take().expect("it was asked for"));
        Ok(Self {
            child,
            began: Instant::now(),
            stdout,
            stderr,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until stderr has said `text` so many times.
    #[track_caller]
    pub(crate) fn hears(&self, text: &str, times: usize) {
        let often = |said: &str| said.matches(text).count() >= times;
        let heard = self.stderr.until(often);
        assert!(
            heard,
            "never said `{text}` {times} times, but:\n{}",
            self.stderr.text()
        );
    }

    /// Waits until stdout has printed `text`, and gives all that it has printed.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) -> String {
        let heard = self.stdout.until(|said| said.contains(text));
        let printed = self.stdout.text();
        assert!(
            heard,
            "never printed `{text}`, but:\n{printed}\n{}",
            self.said()
        );
        printed
    }

    /// What stderr has said so far.
    pub(crate) fn said(&self) -> String {
        self.stderr.text()
    }

    /// Sends a signal by its short name, `TERM` for instance.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.pid());
        let status = Command::new("sh")
            .arg("-c")
            .arg(kill)
            .status()
            .expect("there is a shell");
        assert!(
            status.success(),
            "the process has ended before the signal:\n{}",
            self.said()
        );
    }

    /// `kill -9`, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        // An ended process cannot be killed, and that is just as well.
        let _ended = self.child.kill();
        self.child.wait().expect("it is our child");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn ended(mut self) -> Ended {
        let outputs_end = self.stdout.ended() && self.stderr.ended();
        if !outputs_end {
            self.kill();
            let (out, err) = (self.stdout.text(), self.stderr.text());
            panic!("still running after {BOUND:?}\n--- stdout\n{out}\n--- stderr\n{err}");
        }
        let status = self.child.wait().expect("it is our child");
        Ended {
            code: status.code().unwrap_or(-1),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            took: self.began.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a pipe has said, collected by a thread.
#[derive(Clone, Default)]
struct Heard(Arc<(Mutex<Said>, Condvar)>);

#[derive(Default)]
struct Said {
    text: String,
    ended: bool,
}

impl Heard {
    fn from(pipe: impl Read + Send + 'static) -> Self {
        let heard = Self::default();
        let mine = heard.clone();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            loop {
                let mut line = Vec::new();
                let more = pipe
                    .read_until(b'\n', &mut line)
                    .is_ok_and(|bytes| bytes > 0);
                let mut said = mine.0.0.lock().expect("nobody panics with it");
                said.text += &String::from_utf8_lossy(&line);
                said.ended = !more;
                mine.0.1.notify_all();
                if !more {
                    return;
                }
            }
        });
        heard
    }

    /// Waits until the text is as wanted; false when the pipe ended, or the time is over, without
    /// that.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> bool {
        let said = self.0.0.lock().expect("nobody panics with it");
        let missing = |said: &mut Said| !said.ended && !wanted(&said.text);
        let waited = self.0.1.wait_timeout_while(said, BOUND, missing);
        wanted(&waited.expect("nobody panics with it").0.text)
    }

    fn ended(&self) -> bool {
        self.until(|_| false);
        self.0.0.lock().expect("nobody panics with it").ended
    }

    fn text(&self) -> String {
        self.0.0.lock().expect("nobody panics with it").text.clone()
    }
}

/// Runs the program to its end.
#[track_caller]
pub(crate) fn fabrix(args: &[&str]) -> Ended {
    Running::start(args).ended()
}

/// `fabrix bench` with JSON, which must succeed.
#[track_caller]
pub(crate) fn bench(args: &[&str]) -> Value {
    let ended = fabrix(&[&["bench"], args, &["-o", "json"]].concat());
    ended.exits(0).json()
}

/// A target that runs. Dropping it kills it.
pub(crate) struct Serve {
    pub(crate) process: Running,
    /// What it said of its exports.
    pub(crate) json: Value,
}

impl Serve {
    /// Serves on loopback, on a port that the system chooses unless `args` name one.
    #[track_caller]
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::try_start(args).unwrap_or_else(|ended| panic!("does not serve:\n{ended}"))
    }

    /// The same on a port where a target was killed just now. The kernel tears the rings of a
    /// killed process down a moment after the process is gone, and the port is free only then.
    #[track_caller]
    pub(crate) fn start_again(args: &[&str], port: u16) -> Self {
        Self::start_again_on(args, &format!("nvme+tcp://127.0.0.1:{port}"))
    }

    /// The same for any address to listen on.
    #[track_caller]
    pub(crate) fn start_again_on(args: &[&str], listen: &str) -> Self {
        let args = [args, &["--listen", listen]].concat();
        let until = Instant::now() + BOUND;
        loop {
            match Self::try_start(&args) {
                Ok(serve) => return serve,
                Err(ended) if ended.stderr.contains("in use") && Instant::now() < until => {}
                Err(ended) => panic!("does not serve again:\n{ended}"),
            }
        }
    }

    /// Starts a target, or tells how it ended without serving.
    #[track_caller]
    pub(crate) fn try_start(args: &[&str]) -> Result<Self, Ended> {
        let mut all = vec!["serve", "-o", "json"];
        if !args.contains(&"--listen") {
            all.extend(["--listen", "nvme+tcp://127.0.0.1:0"]);
        }
        all.extend(args);
        // A name for a protocol that is not served is refused, unless an address may come later.
        let may_serve = |scheme| {
            let listens = all.iter().any(|word| word.starts_with(scheme));
            listens || args.contains(&"--api")
        };
        let names = [("--nqn", NQN, "nvme+tcp://"), ("--iqn", IQN, "iscsi://")];
        let names = names.map(|(word, name, scheme)| {
            let missing = !args.contains(&word) && may_serve(scheme);
            missing.then_some([word, name])
        });
        all.extend(names.into_iter().flatten().flatten());
        let process = Running::start(&all);
        if !process.stdout.until(|text| text.contains('\n')) {
            return Err(process.ended());
        }
        let text = process.stdout.text();
        let json = serde_json::from_str(text.lines().next().unwrap_or_default());
        Ok(Self {
            process,
            json: json.expect("the first line is JSON"),
        })
    }

    /// The URI of a disk, counted from 0.
    pub(crate) fn uri(&self, index: usize) -> String {
        self.json["exports"][index]["uri"]
            .as_str()
            .expect("an export has a URI")
            .to_owned()
    }

    /// Where the first listener listens: `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.json["listen"][0]
            .as_str()
            .expect("it listens somewhere")
            .to_owned()
    }

    pub(crate) fn port(&self) -> u16 {
        let address = self.address();
        let (_, port) = address.rsplit_once(':').expect("an address has a port");
        port.parse().expect("a port is a number")
    }

    /// The target's URI, without subsystem and namespace.
    pub(crate) fn target(&self) -> String {
        format!("nvme+tcp://{}", self.address())
    }

    /// Asks it to end, which it must do well.
    #[track_caller]
    pub(crate) fn stop(self) -> Ended {
        self.process.signal("TERM");
        let ended = self.process.ended();
        assert_eq!(ended.code, 0, "{ended}");
        ended
    }
}

/// The engines that this machine has, by their names on the command line.
pub(crate) fn engines() -> &'static [&'static str] {
    static ENGINES: OnceLock<&[&str]> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let doctor = fabrix(&["doctor", "-o", "json"]).json();
        let findings = doctor["findings"].as_array().expect("findings are a list");
        let ring = findings
            .iter()
            .find(|finding| finding["subject"] == "io_uring");
        if ring.is_some_and(|finding| finding["ok"] == true) {
            &["io-uring", "epoll"]
        } else {
            skipped(
                "everything with io_uring",
                "this machine does not allow it; `fabrix doctor` says why",
            );
            &["epoll"]
        }
    })
}

/// Says that something could not be tested here.
pub(crate) fn skipped(what: &str, why: &str) {
    // Past the test runner, which shows what a test says only when it fails.
    let _nobody_reads = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// A folder of the test's own.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir().expect("there is room for temporary files")
}

/// The path of a file in a folder, as text.
pub(crate) fn path_in(folder: &TempDir, name: &str) -> String {
    folder
        .path()
        .join(name)
        .to_str()
        .expect("temporary paths are text")
        .to_owned()
}

/// Makes a file of this length that holds some bytes at a place, and zeroes elsewhere.
pub(crate) fn make_file(path: &str, bytes: u64, at: u64, what: &[u8]) {
    let file = File::create(path).expect("the folder is ours");
    file.set_len(bytes).expect("it is sparse");
    file.write_all_at(what, at).expect("there is room");
}

/// Waits until the file's first bytes change: somebody writes to it, now.
#[track_caller]
pub(crate) fn wait_until_written(path: &str) {
    let before = start_of(path);
    wait_until(path, |start| *start != before);
}

/// Waits until a file of zeroes holds something at its start: somebody has written to it.
#[track_caller]
pub(crate) fn wait_until_filled(path: &str) {
    wait_until(path, |start| start.iter().any(|byte| *byte != 0));
}

#[track_caller]
fn wait_until(path: &str, wanted: impl Fn(&Vec<u8>) -> bool) {
    let until = Instant::now() + BOUND;
    while !wanted(&start_of(path)) {
        assert!(Instant::now() < until, "nobody writes to {path}");
        thread::yield_now();
    }
}

fn start_of(path: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    let file = File::open(path).expect("the file is there");
    file.read_exact_at(&mut bytes, 0)
        .expect("the file is longer");
    bytes
}

/// The processors of this process, as `--cores` wants them.
pub(crate) fn processors() -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = line
        .expect("the kernel tells it")
        .trim()
        .split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<usize>().expect("processors have numbers");
            number(first)..=number(last)
        });
    ranges
        .flatten()
        .map(|processor| processor.to_string())
        .collect()
}

/// The program as somebody without privileges: as user `nobody` when the tests run as root.
pub(crate) fn fabrix_unprivileged(args: &[&str]) -> std::io::Result<Ended> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
    command.args(args);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Running::spawn(&mut command).map(Running::ended)
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").expect("/proc is mounted").uid() == 0
}

/// A figure of a result, which must be there.
#[track_caller]
pub(crate) fn figure(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{pointer} is not a number in\n{value:#}"))
}

/// The user that owns nothing.
const NOBODY: u32 = 65_534;
