//! A simulated driver. Commands wait in a table. A sparse file holds descriptors and data at the
//! offsets of the character device. Registered pages have no content here, because this process
//! cannot read them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::sync::mpsc::{Receiver, channel, sync_channel};

use fabrix_block::ram::RamDisk;
use fabrix_block::{Device, Geometry, Identity};
use fabrix_proto::ublk::spec;
use fabrix_rt::driver::{Completed, Driver, Submission, Until};
use fabrix_rt::{
    Completion, HugePages, Loan, Nanos, Op, Shard, ShardConfig, TaskId, Token, Wait, errno,
};

use crate::FrontEndEvent;
use crate::ublk::server::{Begin, Server};

pub(super) const DEPTH: u16 = 4;
const TRANSFER_BYTES: u32 = 64 << 10;
pub(super) const READ: u32 = 0;
pub(super) const WRITE: u32 = 1;
pub(super) const FLUSH: u32 = 2;
pub(super) const DISCARD: u32 = 3;
pub(super) const ZEROES: u32 = 5;
pub(super) const ABORT: i32 = -errno::ENODEV;

/// State of the simulated driver.
#[derive(Default)]
pub(super) struct Kernel {
    waiting: HashMap<u16, Token>,
    ending: Vec<(u16, i32)>,
    pub(super) answers: Vec<(u16, i32)>,
    /// Length of the buffer table, if there is one.
    pub(super) places: Option<u16>,
}

struct FakeDriver(Rc<RefCell<Kernel>>);

impl Driver for FakeDriver {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        _until: Until,
    ) -> Nanos {
        let mut kernel = self.0.borrow_mut();
        for (token, op) in submissions.drain(..) {
            let Op::DeviceCommand {
                opcode,
                words,
                number,
                ..
            } = op
            else {
                panic!("a server says commands only: {op:?}");
            };
            let [_, _, low, high] = words[0].to_ne_bytes();
            let tag = u16::from_ne_bytes([low, high]);
            let place = kernel.places.map_or(0, |_| spec::buffer_index(tag));
            assert_eq!(number, place, "where the pages are wanted");
            if opcode == spec::COMMIT_AND_FETCH_REQ {
                kernel.answers.push((tag, words[1].cast_signed()));
            }
            assert_eq!(
                kernel.waiting.insert(tag, token),
                None,
                "one command for a tag"
            );
        }
        let Kernel {
            waiting, ending, ..
        } = &mut *kernel;
        for (tag, result) in ending.drain(..) {
            let token = waiting.remove(&tag).expect("its command waits");
            let loan = Loan::None;
            endings.push((token, Completion { result, loan }));
        }
        Nanos::now()
    }

    fn make_table(&mut self, places: u16) -> io::Result<()> {
        self.0.borrow_mut().places = Some(places);
        Ok(())
    }

    fn forget(&mut self, _task: TaskId) {}

    fn in_flight(&self) -> usize {
        self.0.borrow().waiting.len()
    }
}

/// A server and its simulated driver.
pub(super) struct Bench {
    pub(super) shard: Shard,
    pub(super) kernel: Rc<RefCell<Kernel>>,
    device: File,
    pub(super) task: TaskId,
    pub(super) events: Receiver<FrontEndEvent>,
    pub(super) closed: Receiver<()>,
    pub(super) refused: Arc<AtomicI32>,
    pub(super) uncopied: Arc<AtomicU64>,
}

impl Bench {
    pub(super) fn new(disk: Arc<dyn Device>) -> Self {
        Self::with(disk, false)
    }

    /// A server, with a driver that registers pages or not.
    pub(super) fn with(disk: Arc<dyn Device>, lends: bool) -> Self {
        let kernel = Rc::new(RefCell::new(Kernel::default()));
        let driver = Box::new(FakeDriver(Rc::clone(&kernel)));
        let config = ShardConfig {
            arena_bytes: 16 << 20,
            ..ShardConfig::default()
        };
        let mut shard = Shard::with_driver(&config, driver).expect("a shard");
        let device = tempfile::tempfile().expect("a scratch file");
        device
            .set_len(spec::data_position(DEPTH))
            .expect("a sparse one");
        let (sender, events) = channel();
        let (tell_closed, closed) = sync_channel(1);
        let refused = Arc::new(AtomicI32::new(0));
        let uncopied = Arc::<AtomicU64>::default();
        let begin = Begin {
            disk,
            device: device.try_clone().expect("a descriptor"),
            depth: DEPTH,
            transfer_bytes: TRANSFER_BYTES,
            lends,
            uncopied: Arc::clone(&uncopied),
            on_event: Box::new(move |event| drop(sender.send(event))),
            closed: tell_closed,
            refused: Arc::clone(&refused),
        };
        let task = Server::open(&mut shard, begin).expect("a disk that opens");
        shard.turn(Wait::Never);
        let begun = kernel.borrow().waiting.len();
        assert_eq!(begun, usize::from(DEPTH), "every tag waits for a request");
        Self {
            shard,
            kernel,
            device,
            task,
            events,
            closed,
            refused,
            uncopied,
        }
    }

    pub(super) fn ram(geometry: Geometry) -> Self {
        let identity = Identity::derive("ram", "ram", "RAM");
        Self::new(RamDisk::new(geometry, HugePages::No, identity).expect("memory"))
    }

    pub(super) fn end(&mut self, tag: u16, result: i32) {
        self.kernel.borrow_mut().ending.push((tag, result));
        self.turn();
    }

    pub(super) fn turn(&mut self) {
        for _ in 0..3 {
            self.shard.turn(Wait::Never);
        }
    }

    /// Delivers a request. Returns its answer, if there is one already.
    pub(super) fn ask(
        &mut self,
        tag: u16,
        operation: u32,
        start: u64,
        sectors: u32,
    ) -> Option<i32> {
        let mut bytes = [0; spec::DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&operation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&start.to_ne_bytes());
        let place = u64::from(tag) * spec::DESCRIPTOR_BYTES as u64;
        self.device.write_all_at(&bytes, place).expect("room");
        let before = self.kernel.borrow().answers.len();
        self.end(tag, 0);
        let kernel = self.kernel.borrow();
        let (answered, result) = *kernel.answers.get(before)?;
        assert_eq!(answered, tag);
        Some(result)
    }

    pub(super) fn put(&self, tag: u16, data: &[u8]) {
        self.device
            .write_all_at(data, spec::data_position(tag))
            .expect("room");
    }

    pub(super) fn got(&self, tag: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.device
            .read_exact_at(&mut data, spec::data_position(tag))
            .expect("it was set so long");
        data
    }

    pub(super) fn stop(&mut self) {
        let tags: Vec<u16> = self.kernel.borrow().waiting.keys().copied().collect();
        for tag in tags {
            self.end(tag, ABORT);
        }
    }
}

pub(super) fn small() -> Geometry {
    Geometry::new(512, 2048)
}
