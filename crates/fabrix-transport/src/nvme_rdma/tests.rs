//! A queue of the controller over queue pairs in memory. The test is the host.

use fabrix_proto::nvme::spec::Status;
use zerocopy::FromBytes;

use super::*;
use crate::rdma::simulated::{SimulatedPair, SimulatedSizes};
use crate::rdma::testing::{linked, shard};

const SLOTS: u16 = 4;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;

struct Stage {
    shard: Shard,
    host: SimulatedPair,
    queue: RdmaQueue<SimulatedPair>,
}

impl Stage {
    fn new(requests: usize, reads: usize) -> Self {
        let sizes = SimulatedSizes {
            requests,
            receives: usize::from(SLOTS),
            first_receives: 2,
            receive_bytes: 4160,
            reads,
        };
        let ours = SimulatedSizes {
            receives: 64,
            first_receives: 64,
            requests: 64,
            ..sizes
        };
        let (host, target) = linked([ours, sizes]);
        let mut queue = RdmaQueue::new(target, SLOTS, 1 << 20, true);
        queue.set_queue(false, SLOTS.into(), true);
        let mut stage = Self {
            shard: shard(),
            host,
            queue,
        };
        stage.settle();
        stage
    }

    /// The host sends a capsule, and it arrives.
    fn send(&mut self, capsule: &[u8]) {
        self.host.send(capsule, None, 0).expect("room");
        self.host.flush().expect("in memory");
        assert!(self.host.step(), "the target has a receive");
    }

    /// The next command, and how its data moves.
    #[track_caller]
    fn command(&mut self) -> (Claim, Transfer) {
        match self.queue.next() {
            Ok(Some(ControllerEvent::Command {
                claim, transfer, ..
            })) => (claim, transfer),
            other => panic!("not a command: {other:?}"),
        }
    }

    /// Hands everything to the device, which carries it all out.
    fn settle(&mut self) {
        self.queue.flush(&mut self.shard).expect("in memory");
        let target = self.queue.pair.as_ref().expect("open");
        while target.step() {}
    }

    fn buf(&mut self, bytes: usize) -> Buf {
        self.shard.take_buf(bytes).expect("room")
    }

    /// Answers with bytes of a buffer.
    fn answer_with(&mut self, claim: Claim, bytes: &[u8]) {
        let mut buf = self.buf(bytes.len());
        buf.bytes_mut().copy_from_slice(bytes);
        self.queue.send_from(claim.slot(), Outgoing::Buf(buf, 0));
        let length = u32::try_from(bytes.len()).expect("short");
        let _settled = self.queue.answer(claim, success(), length, None);
    }

    fn answer(&mut self, claim: Claim, status: Status) {
        let entry = CompletionEntry::new(status, 0);
        let _settled = self.queue.answer(claim, entry, 0, None);
    }

    /// Responses that the host has, and the keys that they have made invalid.
    fn responses(&mut self) -> Vec<(CompletionEntry, Option<u32>)> {
        let mut all = Vec::new();
        while let Some(done) = self.host.next_done() {
            if let Done::Received {
                slot,
                bytes,
                invalidated,
            } = done
            {
                let entry = CompletionEntry::read_from_bytes(self.host.message(slot, bytes));
                all.push((entry.expect("16 bytes"), invalidated));
            }
        }
        all
    }
}

fn success() -> CompletionEntry {
    CompletionEntry::new(Status::SUCCESS, 0)
}

/// A capsule whose data lies at `address` of memory with a key.
fn capsule(opcode: u8, id: u16, (address, bytes, key): (u64, u32, u32), kind: u8) -> Vec<u8> {
    let mut capsule = vec![0; 64];
    capsule[0] = opcode;
    capsule[2..4].copy_from_slice(&id.to_le_bytes());
    capsule[24..32].copy_from_slice(&address.to_le_bytes());
    capsule[32..35].copy_from_slice(&bytes.to_le_bytes()[..3]);
    capsule[35..39].copy_from_slice(&key.to_le_bytes());
    capsule[39] = kind;
    capsule
}

#[test]
fn a_read_writes_its_data_before_its_response_and_makes_the_key_invalid() {
    let mut stage = Stage::new(20, 4);
    stage.host.expose(7, vec![0; 1024]);
    stage.send(&capsule(READ, 5, (256, 512, 7), 0x4F));
    let (claim, transfer) = stage.command();
    assert_eq!(transfer, Transfer::Send { bytes: 512 });
    stage.answer_with(claim, &[0xA5; 512]);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    let target = stage.queue.pair.as_ref().expect("open");
    assert!(target.step(), "the data");
    let memory = stage.host.exposed(7).expect("still valid");
    assert_eq!(memory[..256], [0; 256]);
    assert_eq!(memory[256..768], [0xA5; 512]);
    assert_eq!(memory[768..], [0; 256]);
    assert!(stage.responses().is_empty());
    stage.settle();
    let [(entry, Some(7))] = stage.responses()[..] else {
        panic!("one response that makes key 7 invalid");
    };
    assert_eq!(entry.command_id.get(), 5);
    assert_eq!(stage.host.exposed(7), None);
}

#[test]
fn a_write_is_read_from_the_host_or_from_its_capsule() {
    let mut stage = Stage::new(20, 4);
    stage.host.expose(9, (0..=255).cycle().take(2048).collect());
    stage.send(&capsule(WRITE, 1, (1, 1024, 9), 0x40));
    let (claim, transfer) = stage.command();
    assert_eq!(transfer, Transfer::Fetch { bytes: 1024 });
    let buf = stage.buf(1024);
    stage
        .queue
        .receive_into(claim.slot(), Incoming::Awaited(buf, 1024));
    stage.queue.fetch(claim.slot());
    assert!(stage.queue.next().expect("open").is_none());
    stage.settle();
    let fetched = ControllerEvent::Fetched {
        slot: claim.slot(),
        intact: true,
    };
    assert_eq!(stage.queue.next().expect("open"), Some(fetched));
    let incoming = stage.queue.take_incoming(claim.slot());
    let expected: Vec<u8> = (0..=255).cycle().skip(1).take(1024).collect();
    assert_eq!(incoming.buf().expect("a buffer").bytes(), expected);
    stage.answer(claim, Status::SUCCESS);
    stage.settle();
    assert_eq!(stage.responses()[0].1, None, "the key stays");

    let mut inline = capsule(WRITE, 2, (0, 0, 0), 0x01);
    inline[32..36].copy_from_slice(&700_u32.to_le_bytes());
    inline.extend_from_slice(&[0x3C; 700]);
    stage.send(&inline);
    let (claim, transfer) = stage.command();
    assert_eq!(transfer, Transfer::Inline { bytes: 700 });
    assert_eq!(stage.queue.in_place(), [0x3C; 700]);
    stage.answer(claim, Status::SUCCESS);
    stage.settle();
    assert_eq!(stage.responses()[0].0.command_id.get(), 2);
}

#[test]
fn bytes_behind_the_data_in_a_capsule_are_no_data() {
    let mut stage = Stage::new(20, 4);
    let mut inline = capsule(WRITE, 2, (0, 0, 0), 0x01);
    inline[32..36].copy_from_slice(&512_u32.to_le_bytes());
    inline.extend_from_slice(&[0x3C; 512]);
    inline.resize(4160, 0);
    stage.send(&inline);
    let (claim, transfer) = stage.command();
    assert_eq!(transfer, Transfer::Inline { bytes: 512 });
    assert_eq!(stage.queue.in_place().len(), 512);
    stage.answer(claim, Status::SUCCESS);
    stage.settle();
    assert_eq!(stage.responses().len(), 1);
}

#[test]
fn data_goes_along_a_list_of_descriptors() {
    let mut stage = Stage::new(20, 4);
    stage.host.expose(1, vec![0; 512]);
    stage.host.expose(2, vec![0; 512]);
    let mut read = capsule(READ, 1, (0, 0, 0), 0x31);
    read[32..36].copy_from_slice(&48_u32.to_le_bytes());
    for (address, bytes, key) in [(0, 100, 1), (12, 500, 2), (400, 100, 1)] {
        let descriptor = capsule(READ, 0, (address, bytes, key), 0x40);
        read.extend_from_slice(&descriptor[24..40]);
    }
    stage.send(&read);
    let (claim, transfer) = stage.command();
    assert_eq!(transfer, Transfer::Send { bytes: 700 });
    let data: Vec<u8> = (0..=255).cycle().take(650).collect();
    stage.answer_with(claim, &data);
    stage.settle();
    let (one, two) = (stage.host.exposed(1), stage.host.exposed(2));
    let (one, two) = (one.expect("valid"), two.expect("valid"));
    assert_eq!(one[..100], data[..100]);
    assert_eq!(two[12..], data[100..600]);
    assert_eq!(one[400..450], data[600..], "a short read ends early");
    assert_eq!(one[450..], [0; 62]);
}

#[test]
fn a_host_gets_most_receives_when_it_is_known() {
    let posted = |queue: &RdmaQueue<SimulatedPair>| queue.pair.as_ref().expect("open").posted();
    let mut stage = Stage::new(20, 4);
    assert_eq!(posted(&stage.queue), 4);
    let sizes = SimulatedSizes {
        requests: 20,
        receives: 4,
        first_receives: 2,
        receive_bytes: 4160,
        reads: 4,
    };
    let (_host, target) = linked([sizes; 2]);
    let mut queue = RdmaQueue::new(target, SLOTS, 1 << 20, true);
    queue.flush(&mut stage.shard).expect("in memory");
    assert_eq!(posted(&queue), 2);
    queue.set_queue(true, 4, true);
    queue.flush(&mut stage.shard).expect("in memory");
    assert_eq!(posted(&queue), 4);
}

#[test]
fn a_receive_is_handed_back_before_the_response_leaves() {
    let mut stage = Stage::new(20, 4);
    for id in 0..SLOTS {
        stage.send(&capsule(READ, id, (0, 0, 0), 0x40));
    }
    assert!(
        stage.queue.pair.as_ref().expect("open").posted() == 0,
        "every receive has a command"
    );
    for round in 0..10_u16 {
        let (claim, _) = stage.command();
        stage.answer(claim, Status::SUCCESS);
        stage.queue.flush(&mut stage.shard).expect("in memory");
        // The response is still on its way, and the host's next command finds a receive already.
        stage.send(&capsule(READ, SLOTS + round, (0, 0, 0), 0x40));
        stage.settle();
        assert_eq!(stage.responses().len(), 1);
    }
}

#[test]
fn answers_that_find_no_room_wait_and_all_leave() {
    let mut stage = Stage::new(3, 4);
    stage.host.expose(3, vec![0; 4096]);
    let mut claims = Vec::new();
    for id in 0..SLOTS {
        stage.send(&capsule(READ, id, (u64::from(id) * 512, 512, 3), 0x40));
        claims.push(stage.command().0);
    }
    for (index, claim) in claims.into_iter().enumerate() {
        let byte = u8::try_from(index + 1).expect("few");
        stage.answer_with(claim, &[byte; 512]);
    }
    assert!(stage.queue.has_unsent() && !stage.queue.is_drained());
    let mut order = Vec::new();
    while !stage.queue.is_drained() {
        stage.settle();
        assert!(stage.queue.next().expect("open").is_none());
        let responses = stage.responses().into_iter();
        order.extend(responses.map(|(entry, _)| entry.command_id.get()));
    }
    assert_eq!(order, [0, 1, 2, 3]);
    let memory = stage.host.exposed(3).expect("valid");
    for index in 0..4 {
        let byte = u8::try_from(index + 1).expect("few");
        assert_eq!(memory[index * 512..][..512], [byte; 512]);
    }
    for id in 0..SLOTS {
        stage.send(&capsule(READ, id, (0, 0, 0), 0x40));
        drop(stage.command());
    }
}

#[test]
fn rdma_reads_wait_for_others_and_answers_do_not_wait_for_them() {
    let mut stage = Stage::new(20, 1);
    stage.host.expose(3, vec![0x77; 4096]);
    let mut writes = Vec::new();
    for id in 0..3 {
        stage.send(&capsule(WRITE, id, (0, 512, 3), 0x40));
        let (claim, _) = stage.command();
        let buf = stage.buf(512);
        stage
            .queue
            .receive_into(claim.slot(), Incoming::Awaited(buf, 512));
        stage.queue.fetch(claim.slot());
        writes.push(claim);
    }
    stage.send(&capsule(READ, 9, (0, 0, 0), 0x40));
    let (claim, _) = stage.command();
    stage.answer(claim, Status::SUCCESS);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    let posted = stage.queue.pair.as_ref().expect("open").requests();
    assert_eq!(posted, 2, "one RDMA READ and the answer");
    for claim in writes {
        stage.settle();
        let fetched = ControllerEvent::Fetched {
            slot: claim.slot(),
            intact: true,
        };
        assert_eq!(stage.queue.next().expect("open"), Some(fetched));
        stage.answer(claim, Status::SUCCESS);
    }
    stage.settle();
    assert_eq!(stage.responses().len(), 4);
}

#[test]
fn an_answer_to_a_write_whose_data_is_on_its_way_follows_the_data() {
    let mut stage = Stage::new(20, 4);
    stage.host.expose(3, vec![0x77; 512]);
    stage.send(&capsule(WRITE, 1, (0, 512, 3), 0x4F));
    let (claim, _) = stage.command();
    let slot = claim.slot();
    let buf = stage.buf(512);
    stage.queue.receive_into(slot, Incoming::Awaited(buf, 512));
    stage.queue.fetch(slot);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    stage.answer(claim, Status::ABORTED_SQ_DELETION);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    assert_eq!(stage.queue.slots_in_use(), 1);
    let target = stage.queue.pair.as_ref().expect("open");
    assert!(target.step() && !target.step(), "only the RDMA READ");
    let released = ControllerEvent::Released { slot };
    assert_eq!(stage.queue.next().expect("open"), Some(released));
    stage.settle();
    let [(entry, Some(3))] = stage.responses()[..] else {
        panic!("one response that makes key 3 invalid");
    };
    assert_eq!(entry.status(), Status::ABORTED_SQ_DELETION);
    assert_eq!(stage.queue.slots_in_use(), 0);
}

#[test]
fn a_wrong_key_ends_the_connection_with_its_reason_and_frees_all_memory() {
    let mut stage = Stage::new(20, 4);
    stage.send(&capsule(READ, 1, (0, 512, 99), 0x40));
    let (claim, _) = stage.command();
    stage.answer_with(claim, &[1; 512]);
    stage.settle();
    match stage.queue.next() {
        Err(Ended::Rdma(failure)) => assert!(failure.why.contains("remote access"), "{failure:?}"),
        other => panic!("the connection goes on: {other:?}"),
    }
    stage.queue.close();
    assert!(stage.queue.is_quiet() && stage.queue.is_drained());
    assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
    assert_eq!(stage.shard.buffer_bytes_in_use(), 0);
    assert!(stage.responses().is_empty());
}

#[test]
fn a_host_that_goes_leaves_nothing_behind() {
    let mut stage = Stage::new(20, 4);
    stage.host.expose(3, vec![0x77; 512]);
    stage.send(&capsule(WRITE, 1, (0, 512, 3), 0x40));
    let (claim, _) = stage.command();
    let buf = stage.buf(512);
    stage
        .queue
        .receive_into(claim.slot(), Incoming::Awaited(buf, 512));
    stage.queue.fetch(claim.slot());
    stage.host.disconnect();
    assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
    stage.answer(claim, Status::SUCCESS);
    stage.queue.close();
    assert_eq!(stage.shard.buffer_bytes_in_use(), 0);
}

#[test]
fn a_message_that_is_no_capsule_is_a_violation_and_nothing_follows() {
    let mut stage = Stage::new(20, 4);
    stage.send(&[0; 63]);
    stage.send(&capsule(READ, 1, (0, 0, 0), 0x40));
    assert!(matches!(stage.queue.next(), Err(Ended::Violation(_))));
    stage.queue.discard();
    assert!(stage.queue.next().expect("it drops all").is_none());
}

#[test]
fn a_refused_command_is_answered_and_its_receive_is_used_again() {
    let mut stage = Stage::new(20, 4);
    for round in 0..10 {
        stage.send(&capsule(READ, round, (0, 512, 1), 0x5A));
        assert!(stage.queue.next().expect("open").is_none());
        stage.settle();
        let [(entry, None)] = stage.responses()[..] else {
            panic!("one response");
        };
        assert_eq!(entry.status(), Status::SGL_TYPE_INVALID);
        assert_eq!(entry.command_id.get(), round);
    }
}
