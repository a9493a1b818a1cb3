//! Other programs, started from the root of the repository.
//!
//! Errors are sentences that name the program; nothing here knows what the programs are for.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The root of the repository: the folder above this crate's.
///
/// cargo tells where the crate is when it starts us; started by hand, the current folder has to be
/// the root.
pub(crate) fn root() -> PathBuf {
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => Path::new(&folder)
            .parent()
            .map_or_else(PathBuf::new, Path::to_path_buf),
        None => PathBuf::from("."),
    }
}

/// A command that starts in the root of the repository.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that started us, or the one in the path.
pub(crate) fn cargo() -> Command {
    command(&cargo_name())
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
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} ended with {status}", line_of(command)))
    }
}

/// Runs to the end and returns what the program wrote to its standard output. What it says besides
/// is shown only when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let failure = format!("{} ended with {}\n{said}", line_of(command), output.status);
        return Err(failure.trim_end().to_owned());
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{} wrote no UTF-8", line_of(command)))
}

/// Whether a program can be started and ends well; it is heard by nobody.
pub(crate) fn works(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// A program in the background, ended when this value goes.
pub(crate) struct Background(pub(crate) Child);

impl Background {
    /// Starts the program with its standard output in our hands; what it says besides is not shown.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// The same, and its standard input is in our hands too.
    pub(crate) fn start_asked(command: &mut Command) -> Result<Self, String> {
        Self::spawn(command.stdin(Stdio::piped()))
    }

    fn spawn(command: &mut Command) -> Result<Self, String> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        child
            .map(Self)
            .map_err(|error| cannot_start(command, &error))
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
        // Both fail only when the program has ended by itself and was waited for: then nothing is
        // left to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", line_of(command))
}

/// Program and arguments as one would type them.
fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_else(|| command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let failure = run(Command::new("false").arg("now")).expect_err("`false` fails");
        assert!(failure.starts_with("`false now` ended with"), "{failure}");
    }

    #[test]
    fn what_a_program_says_besides_is_told_when_it_fails() {
        let mut shell = Command::new("sh");
        let failure = output(shell.args(["-c", "echo out; echo why >&2; exit 3"]));
        let failure = failure.expect_err("it ends with 3");
        assert!(
            failure.contains("exit status: 3") && failure.ends_with("\nwhy"),
            "{failure}"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = output(&mut Command::new("no-such-program-here")).expect_err("not there");
        assert!(
            failure.starts_with("cannot start `no-such-program-here`"),
            "{failure}"
        );
        assert!(!works(&mut Command::new("no-such-program-here")));
    }

    #[test]
    fn a_program_that_is_paused_runs_only_while_it_is_awake() {
        let program = Background::start(Command::new("sleep").arg("60")).expect("it starts");
        let path = format!("/proc/{}/stat", program.0.id());
        let is_stopped = || {
            let stat = std::fs::read_to_string(&path).expect("it lives");
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        // A signal is on its way for a moment.
        let becomes = |stopped: bool| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while is_stopped() != stopped {
                assert!(
                    std::time::Instant::now() < deadline,
                    "stopped: {}",
                    !stopped
                );
                std::thread::yield_now();
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

    #[test]
    fn the_root_holds_the_workspace() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
        assert!(manifest.contains("[workspace]"));
    }
}
