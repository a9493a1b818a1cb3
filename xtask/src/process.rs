//! Other programs, started from the root of the repository.
//!
//! Errors are sentences that name the program. Nothing here knows what the programs are for.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// The root of the repository: the folder above this crate's.
///
/// cargo tells where the crate is when it starts us. Started by hand, the current folder has to be
/// the root.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let above = manifest.and_then(|folder| folder.parent().map(Path::to_path_buf));
    above.unwrap_or_else(|| PathBuf::from("."))
}

/// What cargo says of this workspace.
pub(crate) fn metadata() -> Result<Value, String> {
    let metadata = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&metadata)
        .map_err(|error| format!("`cargo metadata` printed no JSON: {error}"))
}

/// The folder in which cargo builds this workspace.
pub(crate) fn target_folder() -> Result<PathBuf, String> {
    metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "`cargo metadata` names no target folder".to_owned())
}

/// A command that starts in the root of the repository.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that started us, or the one in the path.
pub(crate) fn cargo() -> Command {
    command(cargo_name())
}

/// The name of that cargo, for programs that start it themselves.
pub(crate) fn cargo_name() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Runs to the end; whatever the program prints goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{} ended with {status}", line_of(command))),
    }
}

/// Runs to the end and returns what the program wrote to its standard output. Its standard error is
/// shown only when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = bytes(command)?;
    String::from_utf8(output).map_err(|_| format!("{} wrote no UTF-8", line_of(command)))
}

/// The same for an output that is no text.
pub(crate) fn bytes(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let failure = format!("{} ended with {}\n{said}", line_of(command), output.status);
        return Err(failure.trim_end().to_owned());
    }
    Ok(output.stdout)
}

/// Whether a program can be started and ends well. Its output is thrown away.
pub(crate) fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = quiet.stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Reads a program's output line by line on a thread of its own. The channel closes when nobody can
/// write any more.
pub(crate) fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // Reads on when nobody listens, so that the program never waits for a reader.
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    receiver
}

/// How many processors this process may use.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Works on all items, so many at a time; gives the results in the order of the items.
pub(crate) fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    at_once: usize,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let index = || next.fetch_add(1, Ordering::Relaxed);
        let mine = std::iter::repeat_with(index).map_while(|at| Some((at, items.get(at)?)));
        let done = mine.map(|(at, item)| (at, work(at, item)));
        done.collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|done| done.expect("the work does not panic"))
            .collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, done)| done).collect()
}

/// A program in the background, ended when this value is dropped.
pub(crate) struct Background(pub(crate) Child);

impl Background {
    /// Starts the program with its standard output piped to us. Its standard error is not shown.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// The same with its standard input piped from us too.
    pub(crate) fn start_asked(command: &mut Command) -> Result<Self, String> {
        Self::spawn(command.stdin(Stdio::piped()))
    }

    fn spawn(command: &mut Command) -> Result<Self, String> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        child
            .map(Self)
            .map_err(|error| cannot_start(command, &error))
    }

    /// The lines that it prints.
    pub(crate) fn lines(&mut self) -> Receiver<String> {
        lines_of(self.0.stdout.take().expect("the output was asked for"))
    }

    /// Stops it where it is, so that it takes no processor, until it is awake again.
    pub(crate) fn pause(&self) -> Result<(), String> {
        self.signal("STOP")
    }

    /// Lets it run as long as `work` does.
    pub(crate) fn awake<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        self.signal("CONT")?;
        let done = work();
        self.pause()?;
        done
    }

    fn signal(&self, name: &str) -> Result<(), String> {
        // The shell's own: not every machine has a program of that name.
        let words = ["-c", "kill -s \"$0\" \"$1\"", name];
        run(command("sh").args(words).arg(self.0.id().to_string()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail only when the program has ended by itself and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", line_of(command))
}

/// Program and arguments as one would type them.
fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name();
    let program = program.unwrap_or_else(|| command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_named_with_what_it_said() {
        let mut shell = Command::new("sh");
        let failure = output(shell.args(["-c", "echo out; echo why >&2; exit 3"]));
        let failure = failure.expect_err("it ends with 3");
        assert!(
            failure.starts_with("`sh -c echo") && failure.ends_with("status: 3\nwhy"),
            "{failure}"
        );
        let failure = run(&mut Command::new("no-such-program")).expect_err("not there");
        assert!(
            failure.starts_with("cannot start `no-such-program`"),
            "{failure}"
        );
    }

    #[test]
    fn a_program_that_is_paused_runs_only_while_it_is_awake() {
        let program = Background::start(Command::new("sleep").arg("60")).expect("it starts");
        let path = format!("/proc/{}/stat", program.0.id());
        // A signal is on its way for a moment.
        let becomes = |stopped: bool| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while std::fs::read_to_string(&path).is_ok_and(|stat| stat.contains(") T")) != stopped {
                assert!(std::time::Instant::now() < deadline, "{stopped}");
                thread::yield_now();
            }
        };
        program.pause().expect("there is such a process");
        becomes(true);
        let failure = program.awake(|| {
            becomes(false);
            Err::<(), _>("measured nothing".to_owned())
        });
        assert_eq!(failure, Err("measured nothing".to_owned()));
        becomes(true);
    }
}
