//! What tests of attached disks have in common: a folder of attachments, what the machine lacks,
//! and as much NBD as it takes to read a block.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::harness::{BOUND, Ended, Running, skipped};

/// A folder of attachments of its own. What is left in it is detached by force.
pub(super) struct Place(TempDir);

impl Place {
    pub(super) fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Whether it is root who runs the tests.
    pub(super) fn is_roots(&self) -> bool {
        fs::metadata(self.folder()).is_ok_and(|it| it.uid() == 0)
    }

    /// Where a disk is declared for the next start.
    pub(super) fn declared(&self, name: &str) -> PathBuf {
        self.folder().join(format!("config/attach.d/{name}.toml"))
    }

    /// The program, with its folders here.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
        command.env("FABRIX_RUN_DIR", self.folder());
        command
            .env("FABRIX_CONFIG_DIR", self.folder().join("config"))
            .args(args);
        command
    }

    /// Runs the program as a user that owns nothing; fails where he may not start it.
    pub(super) fn run_as_nobody(&self, args: &[&str]) -> std::io::Result<Ended> {
        Self::as_nobody(&mut self.command(args))
    }

    /// The same for any program.
    pub(super) fn as_nobody(command: &mut Command) -> std::io::Result<Ended> {
        Self::start_as_nobody(command).map(Running::ended)
    }

    pub(super) fn start_as_nobody(command: &mut Command) -> std::io::Result<Running> {
        if fs::metadata("/proc/self")?.uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        Running::spawn(command)
    }

    pub(super) fn start(&self, args: &[&str]) -> Running {
        Running::spawn(&mut self.command(args))
            .expect("the program that was just built can be started")
    }

    pub(super) fn run(&self, args: &[&str]) -> Ended {
        self.start(args).ended()
    }

    /// Attaches, and gives the device.
    #[track_caller]
    pub(super) fn attach(&self, args: &[&str]) -> PathBuf {
        let ended = self.run(&[&["attach"], args].concat());
        PathBuf::from(ended.exits(0).stdout.trim())
    }

    #[track_caller]
    pub(super) fn list(&self) -> Vec<Value> {
        let all = self.run(&["list", "-o", "json"]).exits(0).json();
        all["attachments"].as_array().expect("a list").clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run(&["detach", "all", "--force"]);
    }
}

/// Whether block devices can be made here; says why not. Where root tests and the kernel has what
/// it takes, a failure to make one is no reason.
pub(super) fn has_block_devices(test: &str) -> bool {
    has(test, &["/dev/fuse", "/dev/loop-control"], may_mount())
}

/// Whether files over FUSE can be made here, as [`has_block_devices`].
pub(super) fn has_files(test: &str) -> bool {
    has(test, &["/dev/fuse"], may_mount())
}

fn has(test: &str, devices: &[&str], may: bool) -> bool {
    let refused = |path: &&str| {
        let opened = File::options().read(true).write(true).open(path);
        opened.err().map(|error| format!("{path}: {error}"))
    };
    let lacks = devices.iter().find_map(refused);
    let lacks = lacks.or_else(|| (!may).then(|| "only root may mount".to_owned()));
    if let Some(lacks) = &lacks {
        skipped(test, lacks);
    }
    lacks.is_none()
}

/// Whether we have CAP_SYS_ADMIN, number 21 of capabilities(7).
fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let all = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let all = all.and_then(|all| u64::from_str_radix(all.trim(), 16).ok());
    all.is_some_and(|all| all & (1 << 21) != 0)
}

/// Whether programs are here, and ext4 if one makes it; says what is missing.
pub(super) fn has_programs(test: &str, programs: &[&str]) -> bool {
    let missing = |program: &&&str| !shell(&format!("command -v {program} >/dev/null"));
    if let Some(program) = programs.iter().find(missing) {
        skipped(test, &format!("there is no {program} here"));
        return false;
    }
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_ext4 = systems.contains("ext4") || !programs.contains(&"mkfs.ext4");
    if !has_ext4 {
        skipped(test, "the kernel has no ext4");
    }
    has_ext4
}

/// Read by every mounted file system, written while a mount namespace is made: a new namespace
/// keeps a copy of every mount, and a device with a copy cannot be detached.
pub(super) static NAMESPACE: RwLock<()> = RwLock::new(());

/// A file system where a folder was. Dropping this takes it out of sight, whoever still uses it.
pub(super) struct Mounted {
    pub(super) at: TempDir,
    device: PathBuf,
    _in_one_namespace: RwLockReadGuard<'static, ()>,
}

impl Mounted {
    /// Makes an ext4 on a device and mounts it.
    #[track_caller]
    pub(super) fn fresh(device: &Path) -> Self {
        assert!(shell(&format!("mkfs.ext4 -q {}", device.display())));
        let mounted = Self {
            at: TempDir::new().expect("a folder"),
            device: device.to_owned(),
            _in_one_namespace: NAMESPACE.read().unwrap_or_else(PoisonError::into_inner),
        };
        mounted.mount();
        mounted
    }

    #[track_caller]
    pub(super) fn mount(&self) {
        let at = self.at.path().display();
        assert!(shell(&format!("mount {} {at}", self.device.display())));
    }

    #[track_caller]
    pub(super) fn unmount(&self) {
        assert!(shell(&format!("umount {}", self.at.path().display())));
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.at.path().join(name).display().to_string()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let at = self.at.path().display();
        shell(&format!("umount --lazy {at} 2>/dev/null"));
    }
}

/// Something of a block device that the kernel tells.
pub(super) fn told(device: &Path, what: &str) -> String {
    let name = device.file_name().expect("a device").to_string_lossy();
    let text = fs::read_to_string(format!("/sys/block/{name}/{what}")).unwrap_or_default();
    text.trim().to_owned()
}

/// Waits until something holds.
#[track_caller]
pub(super) fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no thread of these processes waits uninterruptibly; those that have ended do not.
#[track_caller]
pub(super) fn nobody_hangs(pids: &[u64]) {
    wait(&format!("nobody of {pids:?} hangs"), || {
        pids.iter().all(|pid| !hangs(*pid))
    });
}

/// Whether a thread of a process waits uninterruptibly (D in proc_pid_stat(5)).
pub(super) fn hangs(pid: u64) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let stats = threads.into_iter().flatten().flatten();
    let mut stats = stats.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.any(|stat| {
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        state == Some(b'D')
    })
}

pub(super) fn shell(line: &str) -> bool {
    let status = Command::new("sh").args(["-c", line]).status();
    status.is_ok_and(|status| status.success())
}

/// A client that has begun to speak NBD in the oldest way.
pub(super) struct Nbd<S>(S);

pub(super) fn begin_nbd(path: &Path) -> Nbd<UnixStream> {
    begin_nbd_on(UnixStream::connect(path).expect("the socket answers"))
}

/// The same over any connection.
pub(super) fn begin_nbd_on<S: Read + Write>(mut stream: S) -> Nbd<S> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    let begin = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    stream.write_all(&begin).expect("it listens");
    stream.read_exact(&mut [0; 10]).expect("size and flags");
    Nbd(stream)
}

impl<S: Read + Write> Nbd<S> {
    /// Reads, or tells the error.
    pub(super) fn read(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, u32> {
        let stream = &mut self.0;
        let head = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let request = [&head[..], &offset.to_be_bytes(), &bytes.to_be_bytes()].concat();
        stream.write_all(&request).expect("it listens");
        let mut head = [0; 16];
        stream.read_exact(&mut head).expect("an answer");
        let [_, _, _, _, error @ .., _, _, _, _, _, _, _, _] = head;
        if error != [0; 4] {
            return Err(u32::from_be_bytes(error));
        }
        let mut data = vec![0; bytes as usize];
        stream.read_exact(&mut data).expect("the data");
        Ok(data)
    }
}

/// As much NBD as it takes to read some blocks.
pub(super) fn read_over_nbd(path: &Path, offset: u64, bytes: u32) -> Vec<u8> {
    begin_nbd(path).read(offset, bytes).expect("no error")
}

/// Waits until the one attachment is as wanted.
#[track_caller]
pub(super) fn until(place: &Place, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + BOUND;
    loop {
        let all = place.list();
        if let Some(one) = all.first().filter(|one| wanted(one)) {
            return one.clone();
        }
        assert!(Instant::now() < end, "never {what}: {all:?}");
        thread::yield_now();
    }
}

/// The user that owns nothing.
const NOBODY: u32 = 65_534;
