//! A queue of the host over queue pairs in memory. The test is the controller.

use fabrix_proto::nvme::spec::{KeyedSglDescriptor, SglKind, Status};
use sys_rdma::Remote;
use zerocopy::FromBytes;

use super::*;
use crate::rdma::simulated::{SimulatedPair, SimulatedSizes};
use crate::rdma::{Pair, testing};

const SLOTS: u16 = 4;
/// Token of what the controller sends.
const CONTROLLER: u64 = 77;

struct Stage {
    shard: Shard,
    queue: RdmaHostQueue<SimulatedPair>,
    controller: SimulatedPair,
}

impl Stage {
    fn new() -> Self {
        let host = SimulatedSizes {
            requests: usize::from(SLOTS) * REQUESTS_OF_A_COMMAND as usize,
            receives: usize::from(SLOTS) + 1,
            first_receives: usize::from(SLOTS) + 1,
            receive_bytes: 16,
            reads: 0,
        };
        let controller = SimulatedSizes {
            requests: 64,
            receives: 64,
            first_receives: 64,
            receive_bytes: 4160,
            reads: 16,
        };
        let (host, controller) = testing::linked([host, controller]);
        let mut queue = RdmaHostQueue::new(host, SLOTS);
        assert!(!queue.is_ready());
        assert_eq!(queue.next().expect("open"), Some(HostEvent::Ready));
        assert!(queue.is_ready());
        Self {
            shard: testing::shard(),
            queue,
            controller,
        }
    }

    /// Submits a read of so many bytes, to a place at an offset of its buffer.
    fn read(&mut self, slot: u16, bytes: u32) {
        let buf = self.shard.take_buf(64 + bytes as usize).expect("room");
        self.queue.receive_into(Slot(slot), Incoming::Buf(buf, 64));
        self.submit(slot, HostTransfer::Read { bytes });
    }

    /// Submits a write of the byte 0xA5.
    fn write(&mut self, slot: u16, bytes: u32) {
        let mut buf = self.shard.take_buf(bytes as usize).expect("room");
        buf.bytes_mut().fill(0xA5);
        self.queue.send_from(Slot(slot), Outgoing::Buf(buf, 0));
        self.submit(slot, HostTransfer::Write { bytes });
    }

    fn submit(&mut self, slot: u16, transfer: HostTransfer) {
        let mut entry = SubmissionEntry::read(1, 0, 1);
        assert!(self.queue.submit(Slot(slot), &mut entry, transfer));
    }

    /// The host hands over what it has, and its device carries it out.
    fn settle(&mut self) {
        self.queue.flush(&mut self.shard).expect("open");
        let pair = self.queue.pair.as_ref().expect("open");
        while pair.step() {}
    }

    /// The commands that have reached the controller: entry, descriptor and data behind it.
    fn commands(&mut self) -> Vec<(SubmissionEntry, KeyedSglDescriptor, Vec<u8>)> {
        self.settle();
        let mut all = Vec::new();
        while let Some(done) = self.controller.next_done() {
            if let Done::Received { slot, bytes, .. } = done {
                let capsule = self.controller.message(slot, bytes).to_vec();
                let (entry, data) = SubmissionEntry::read_from_prefix(&capsule).expect("64 bytes");
                all.push((entry, entry.sgl.keyed(), data.to_vec()));
            }
        }
        all
    }

    /// The only command that has reached the controller.
    #[track_caller]
    fn command(&mut self) -> (SubmissionEntry, KeyedSglDescriptor, Vec<u8>) {
        let mut all = self.commands();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn answer(&mut self, entry: &SubmissionEntry, invalidate: Option<u32>) {
        let mut response = CompletionEntry::new(Status::SUCCESS, 0);
        response.command_id = entry.command_id;
        let bytes = response.as_bytes().to_vec();
        self.message(&bytes, invalidate);
    }

    fn message(&mut self, bytes: &[u8], invalidate: Option<u32>) {
        let sent = self.controller.send(bytes, invalidate, CONTROLLER);
        sent.expect("room");
        self.controller.flush().expect("in memory");
        while self.controller.step() {}
    }

    /// The controller writes into memory of the host. False: it may not.
    fn put(&mut self, bytes: &[u8], remote: Remote) -> bool {
        testing::put(&mut self.controller, &mut self.shard, bytes, remote)
    }

    /// The controller reads memory of the host. None: it may not.
    fn get(&mut self, bytes: usize, remote: Remote) -> Option<Vec<u8>> {
        testing::get(&mut self.controller, &mut self.shard, bytes, remote)
    }

    #[track_caller]
    fn completed(&mut self, slot: u16, data_bytes: u32) -> Vec<u8> {
        let expected = HostEvent::Completed {
            slot: Slot(slot),
            data_bytes,
            intact: true,
        };
        assert_eq!(self.queue.next().expect("open"), Some(expected));
        let buf = self.queue.release(Slot(slot));
        buf.map_or(Vec::new(), |buf| {
            assert!(buf.is_unique(), "nobody else has the data");
            buf.bytes().to_vec()
        })
    }
}

fn place(keyed: &KeyedSglDescriptor, offset: u64) -> Remote {
    Remote {
        address: keyed.address.get() + offset,
        key: keyed.key.get(),
    }
}

#[test]
fn a_controller_writes_a_reads_data_and_its_response_ends_its_access() {
    let mut stage = Stage::new();
    stage.read(2, 512);
    let (entry, keyed, data) = stage.command();
    assert!(data.is_empty());
    assert_eq!(
        (keyed.kind, keyed.length_bytes()),
        (SglKind::KEYED_INVALIDATE, 512)
    );
    assert!(stage.put(&[7; 512], place(&keyed, 0)));
    assert_eq!(stage.queue.next().expect("open"), None, "no answer yet");
    stage.answer(&entry, Some(keyed.key.get()));
    let bytes = stage.completed(2, 512);
    assert_eq!(bytes[..64], [0; 64], "the data begins at its offset");
    assert_eq!(bytes[64..576], [7; 512]);
    assert!(
        !stage.put(&[8; 512], place(&keyed, 0)),
        "the key is invalid"
    );
}

#[test]
fn a_controller_reads_a_writes_data_and_cannot_write_it_or_reach_beyond() {
    let mut stage = Stage::new();
    stage.write(0, 8192);
    let (entry, keyed, _) = stage.command();
    assert_eq!(stage.get(4096, place(&keyed, 4096)), Some(vec![0xA5; 4096]));
    stage.answer(&entry, Some(keyed.key.get()));
    assert_eq!(stage.completed(0, 8192)[..8192], [0xA5; 8192]);

    for wrong in 0..2 {
        let mut stage = Stage::new();
        stage.write(0, 8192);
        let (_, keyed, _) = stage.command();
        let reached = match wrong {
            0 => stage.put(&[0; 16], place(&keyed, 0)),
            _ => stage.get(16, place(&keyed, 8180)).is_some(),
        };
        assert!(!reached);
        assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
    }
}

#[test]
fn a_window_that_the_controller_leaves_open_is_closed_before_the_command_completes() {
    let mut stage = Stage::new();
    stage.read(1, 512);
    let (entry, keyed, _) = stage.command();
    assert!(stage.put(&[7; 512], place(&keyed, 0)));
    stage.answer(&entry, None);
    assert_eq!(
        stage.queue.next().expect("open"),
        None,
        "the window is open"
    );
    stage.settle();
    assert_eq!(stage.completed(1, 512)[64..576], [7; 512]);
    assert!(
        !stage.put(&[8; 512], place(&keyed, 0)),
        "the key is invalid"
    );
}

#[test]
fn a_short_write_travels_in_its_capsule_once_that_is_allowed() {
    let mut stage = Stage::new();
    stage.queue.set_in_capsule(8192);
    stage.write(3, 4096);
    let (entry, keyed, data) = stage.command();
    assert_eq!(keyed.kind, SglKind::IN_CAPSULE);
    assert_eq!(data, [0xA5; 4096]);
    stage.answer(&entry, None);
    stage.completed(3, 4096);
    stage.write(3, 4097);
    let (_, keyed, data) = stage.command();
    assert_eq!(keyed.kind, SglKind::KEYED_INVALIDATE);
    assert!(data.is_empty());
}

#[test]
fn a_full_queue_runs_for_long_with_every_receive_and_window_in_use() {
    for invalidates in [true, false] {
        let mut stage = Stage::new();
        for round in 0..100_u8 {
            (0..SLOTS).for_each(|slot| stage.read(slot, 512));
            let commands = stage.commands();
            assert_eq!(commands.len(), usize::from(SLOTS));
            for (entry, keyed, _) in &commands {
                assert!(stage.put(&[round; 512], place(keyed, 0)));
                stage.answer(entry, invalidates.then_some(keyed.key.get()));
            }
            if !invalidates {
                assert_eq!(stage.queue.next().expect("open"), None);
                stage.settle();
            }
            for slot in 0..SLOTS {
                assert_eq!(stage.completed(slot, 512)[64..576], [round; 512]);
            }
            // The controller takes messages in all of its receives again.
            while let Some(done) = stage.controller.next_done() {
                drop(done);
            }
            let used = u32::from(SLOTS) * u32::from(round);
            for slot in used..used + u32::from(SLOTS) {
                stage.controller.post_receive(slot % 64);
            }
            stage.controller.flush().expect("in memory");
        }
    }
}

#[test]
fn a_connection_that_ends_gives_every_buffer_back_at_once() {
    let mut stage = Stage::new();
    stage.read(0, 512);
    stage.write(1, 8192);
    stage.read(2, 512);
    let commands = stage.commands();
    // The window of the third command is being closed.
    stage.answer(&commands[2].0, None);
    assert_eq!(stage.queue.next().expect("open"), None);
    stage.queue.flush(&mut stage.shard).expect("open");
    stage.queue.close();
    assert!(stage.queue.is_quiet() && !stage.queue.is_ready());
    for slot in 0..3 {
        let buf = stage.queue.release(Slot(slot)).expect("it comes back");
        assert!(buf.is_unique());
    }
    assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
    let reached = stage.put(&[0; 512], place(&commands[0].1, 0));
    assert!(!reached, "the controller reaches nothing any more");
}

#[test]
fn a_response_that_is_none_ends_the_connection() {
    for (bytes, key) in [(15, None), (16, None), (16, Some(0))] {
        let mut stage = Stage::new();
        stage.read(0, 512);
        let (entry, keyed, _) = stage.command();
        let other = CompletionEntry::new(Status::SUCCESS, 0);
        match key {
            // The key is another command's.
            Some(_) => {
                stage.submit(1, HostTransfer::None);
                let (without, ..) = stage.command();
                stage.answer(&without, Some(keyed.key.get()));
            }
            None => {
                let mut wrong = other.as_bytes().to_vec();
                let id = entry.command_id.get() + 1;
                wrong[12..14].copy_from_slice(&id.to_le_bytes());
                stage.message(&wrong[..bytes], None);
            }
        }
        assert!(matches!(stage.queue.next(), Err(Ended::Violation(_))));
    }
}

#[test]
fn a_connection_that_fails_says_why() {
    let mut stage = Stage::new();
    stage.read(0, 512);
    stage.settle();
    let pair = stage.queue.pair.as_ref().expect("open");
    pair.break_with(12, "transport retry counter exceeded");
    match stage.queue.next() {
        Err(Ended::Rdma(failure)) => assert!(failure.why.contains("retry counter"), "{failure:?}"),
        other => panic!("the connection goes on: {other:?}"),
    }
}
