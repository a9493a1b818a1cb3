//! A disk that our program, outside of the guest, gives it over vhost-user-blk: for as long as its
//! machines run. What becomes of the process and of the disk meanwhile is the guest's script to ask
//! for.

use crate::process::{command, output};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

pub(super) struct Attached {
    program: PathBuf,
    /// The process's own folder of attachments.
    folder: PathBuf,
    uri: String,
    process: Child,
}

const NAME: &str = "disk";
const FOLDER: &str = "FABRIX_RUN_DIR";

impl Attached {
    /// Attaches the disk `uri`, whose files lie in a folder of its own, and waits until its socket
    /// is there.
    pub(super) fn start(program: &Path, uri: &str, index: usize) -> Result<Self, String> {
        // A socket's path must be short.
        let name = format!("fabrix-interop-{}-{index}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self {
            program: program.to_owned(),
            process: attach(program, &folder, uri)?,
            folder,
            uri: uri.to_owned(),
        })
    }

    /// Does what a guest's script has asked for: `kill` ends the process as nothing can be caught,
    /// and starts another; `grow SIZE` makes the disk's file longer.
    pub(super) fn obey(&mut self, asked: &str) -> Result<(), String> {
        match asked.split_once(' ') {
            None if asked == "kill" => self.die(),
            Some(("grow", bytes)) => self.grow(bytes),
            _ => Err(format!("nobody outside of a guest can `{asked}`")),
        }
    }

    fn die(&mut self) -> Result<(), String> {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        let status = killed.map_err(|error| format!("cannot kill `fabrix attach`: {error}"))?;
        if status.code().is_some() {
            return Err(format!("`fabrix attach` ended by itself: {status}"));
        }
        self.process = attach(&self.program, &self.folder, &self.uri)?;
        Ok(())
    }

    fn grow(&self, bytes: &str) -> Result<(), String> {
        let words = self.uri.strip_prefix("file:").unwrap_or_default();
        let name = words.split(',').next().unwrap_or_default();
        let bytes = bytes
            .parse()
            .map_err(|_| format!("`grow {bytes}`: that is no number of bytes"))?;
        let file = fs::File::options().write(true).open(self.folder.join(name));
        file.and_then(|file| file.set_len(bytes))
            .map_err(|error| format!("{}: {error}", self.uri))?;
        self.tell("resize")
    }

    /// Where machines connect.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(format!("{NAME}.vhost"))
    }

    /// Takes it away, as a user does when no machine has it any more.
    pub(super) fn detach(self) -> Result<(), String> {
        self.tell("detach")
    }

    fn tell(&self, what: &str) -> Result<(), String> {
        let mut tell = command(&self.program);
        tell.args([what, NAME]).env(FOLDER, &self.folder);
        output(&mut tell).map(drop)
    }
}

/// Starts a process that attaches the disk, and waits until it has.
fn attach(program: &Path, folder: &Path, uri: &str) -> Result<Child, String> {
    let mut attach = command(program);
    attach
        .args(["attach", uri, "--as", "vhost-user", "--name", NAME])
        .arg("--foreground")
        .env(FOLDER, folder)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut process = attach
        .spawn()
        .map_err(|error| format!("cannot start `fabrix attach`: {error}"))?;
    let mut line = String::new();
    if let Some(said) = process.stdout.take() {
        let _it_has_ended = BufReader::new(said).read_line(&mut line);
    }
    if line.trim().is_empty() {
        let _status = process.wait();
        return Err(format!(
            "`fabrix attach {uri}` ended before it had attached anything"
        ));
    }
    Ok(process)
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ended_by_itself = self.process.kill();
        let _status = self.process.wait();
        let _left = fs::remove_dir_all(&self.folder);
    }
}
