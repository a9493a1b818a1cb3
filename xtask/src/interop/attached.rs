//! A disk that our program, outside of the guest, gives it over vhost-user-blk: for as long as its machines run.

use crate::process::{command, output};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

pub(super) struct Attached {
    program: PathBuf,
    /// The process's own folder of attachments.
    folder: PathBuf,
    process: Child,
}

const NAME: &str = "disk";

impl Attached {
    /// Attaches the disk `uri`, whose files lie in a folder of its own, and waits until its socket is there.
    pub(super) fn start(program: &Path, uri: &str, index: usize) -> Result<Self, String> {
        // A socket's path must be short.
        let name = format!("fabrix-interop-{}-{index}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let mut attach = command(&program.to_string_lossy());
        attach
            .args([
                "attach",
                uri,
                "--as",
                "vhost-user",
                "--name",
                NAME,
                "--foreground",
            ])
            .env("FABRIX_RUN_DIR", &folder)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = attach
            .spawn()
            .map_err(|error| format!("cannot start `fabrix attach`: {error}"))?;
        let mut line = String::new();
        if let Some(said) = process.stdout.take() {
            let _it_has_ended = BufReader::new(said).read_line(&mut line);
        }
        let attached = Self {
            program: program.to_owned(),
            folder,
            process,
        };
        match line.trim().is_empty() {
            true => Err(format!(
                "`fabrix attach {uri}` ended before it had attached anything"
            )),
            false => Ok(attached),
        }
    }

    /// Where machines connect.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(format!("{NAME}.vhost"))
    }

    /// Takes it away, as a user does when no machine has it any more.
    pub(super) fn detach(self) -> Result<(), String> {
        let mut detach = command(&self.program.to_string_lossy());
        detach
            .args(["detach", NAME])
            .env("FABRIX_RUN_DIR", &self.folder);
        output(&mut detach).map(drop)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ended_by_itself = self.process.kill();
        let _status = self.process.wait();
        let _left = fs::remove_dir_all(&self.folder);
    }
}
