//! Simulated files: the driver of a shard carries the operations of files out here.
//!
//! A simulated file has a real, empty file as its name, which is in no folder. So the product opens
//! it, locks it and takes its size as it does with any file. What is read and written goes through
//! the driver, and stays in the images.

mod operation;
mod state;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_block::file::{FileDisk, FileOptions};
use fabrix_rt::Op;

pub(crate) use self::operation::FileOperation;
use self::state::FileState;
use crate::backing::Backing;
use crate::choices::Choices;
use crate::disk_faults::DiskFaults;
use crate::images::BLOCK;

/// The files of a world, by the inode of their names.
#[derive(Clone, Default)]
pub(crate) struct Files(Rc<RefCell<BTreeMap<u64, Rc<RefCell<FileState>>>>>);

/// How the kernel behaves with a file.
#[derive(Clone, Debug)]
pub(crate) struct FileHabits {
    /// Blocks of the file.
    pub(crate) blocks: u64,
    /// Most time that an operation takes.
    pub(crate) longest: Duration,
    /// Whether reads and writes now and then end early, or with EINTR or EAGAIN.
    pub(crate) interrupts: bool,
    /// Whether the file system zeroes ranges and punches holes.
    pub(crate) allocates: bool,
    /// How the disk below fails.
    pub(crate) faults: DiskFaults,
}

impl Files {
    /// A file of zeroes.
    pub(crate) fn create(&self, habits: FileHabits, choices: Choices) -> SimFile {
        let name = nameless(habits.blocks * BLOCK as u64);
        let state = Rc::new(RefCell::new(FileState::new(habits, choices)));
        let inode = name.metadata().expect("an open file").ino();
        self.0.borrow_mut().insert(inode, Rc::clone(&state));
        SimFile { name, state }
    }

    /// The file that an operation works on, if it is one of these.
    pub(crate) fn of(&self, op: &Op) -> Option<Rc<RefCell<FileState>>> {
        let (Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::Sync { file }
        | Op::Allocate { file, .. }) = op
        else {
            return None;
        };
        let inode = file.file().metadata().expect("an open file").ino();
        self.0.borrow().get(&inode).map(Rc::clone)
    }
}

/// A real file without a name in any folder.
fn nameless(bytes: u64) -> File {
    let path = std::env::temp_dir().join(format!("fabrix-sim-{}", std::process::id()));
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true);
    let file = options.open(&path).expect("a temporary file");
    std::fs::remove_file(&path).expect("it was made just now");
    file.set_len(bytes).expect("a size");
    file
}

/// A file of a world, which the product's file back end serves.
pub(crate) struct SimFile {
    name: File,
    state: Rc<RefCell<FileState>>,
}

impl Backing for SimFile {
    fn open(&self) -> Arc<dyn Device> {
        self.state.borrow_mut().close_all();
        let path = format!("/proc/self/fd/{}", self.name.as_raw_fd());
        let options = FileOptions {
            // The file system of the name decides about direct I/O, and that of worlds may not.
            direct: false,
            name: Some("simulated".to_owned()),
            ..FileOptions::new(path)
        };
        FileDisk::open(options).expect("nobody else has it open")
    }

    fn image(&self) -> Vec<u8> {
        self.state.borrow().image().to_vec()
    }

    fn lose_power(&self) {
        self.state.borrow_mut().lose_power();
    }
}
