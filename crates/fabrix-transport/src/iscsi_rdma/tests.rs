//! A target's connection over queue pairs in memory. The test is the initiator.

use std::num::NonZeroU16;

use fabrix_proto::iscsi::iser::{MESSAGE_BYTES_MAX, wishes};
use fabrix_proto::iscsi::login::{Admission, Auth, Grant};
use fabrix_proto::iscsi::target::{Answer, TargetLimits, Transfer};
use fabrix_proto::{Claim, Nanos};
use fabrix_rt::Loan;

use super::*;
use crate::rdma::simulated::{SimulatedPair, SimulatedSizes};
use crate::rdma::testing::{linked, shard};

const READ: u8 = 0xC1;
const WRITE: u8 = 0xA1;
const RECEIVES: usize = 12;
const FIRST_RECEIVES: usize = 2;

struct Stage {
    shard: Shard,
    initiator: SimulatedPair,
    queue: IserQueue<SimulatedPair>,
    cmd_sn: u32,
}

impl Stage {
    fn new(requests: usize, reads: usize) -> Self {
        let sizes = SimulatedSizes {
            requests,
            receives: RECEIVES,
            first_receives: FIRST_RECEIVES,
            receive_bytes: MESSAGE_BYTES_MAX,
            reads,
        };
        let ours = SimulatedSizes {
            receives: 64,
            first_receives: 64,
            requests: 64,
            ..sizes
        };
        let (initiator, pair) = linked([ours, sizes]);
        let limits = TargetLimits {
            window: 4,
            immediate: 2,
            max_inline_bytes: 8192,
            wishes: wishes(),
            ..TargetLimits::default()
        };
        let target = Target::new(limits, Nanos(0));
        Self {
            shard: shard(),
            initiator,
            queue: IserQueue::new(pair, target, limits.slots(), true),
            cmd_sn: 1,
        }
    }

    fn logged_in(requests: usize, reads: usize) -> Self {
        let mut stage = Self::new(requests, reads);
        stage.log_in("SessionType=Normal\0TargetName=iqn.2026-01.example:disk\0");
        stage.settle();
        assert_eq!(stage.responses()[0].0[36], 0);
        stage
    }

    /// Logs in. The answer is prepared.
    fn log_in(&mut self, keys: &str) {
        let text = format!(
            "InitiatorName=iqn.2026-01.example:host\0{keys}RDMAExtensions=Yes\0TargetRecvDataSegmentLength=8192\0"
        );
        let mut pdu = pdu(0x43, 0x87, text.as_bytes());
        pdu[24..28].copy_from_slice(&1_u32.to_be_bytes());
        self.send(&message(None, None, &pdu));
        assert_eq!(self.queue.next().expect("open"), Some(Event::Authorize));
        let (target, mut out) = self.queue.speak();
        let grant = Grant {
            portal_group_tag: 1,
            auth: Auth::None,
        };
        let event = target.admit(Admission::Admit(grant), &mut out);
        assert_eq!(event, Some(Event::Proved));
        let event = target.enter(Ok(NonZeroU16::MIN), &mut out);
        assert_eq!(event, Some(Event::LoggedIn));
        drop(out);
        assert_eq!(self.queue.next().expect("open"), None);
    }

    /// The initiator sends a message, and it arrives.
    fn send(&mut self, message: &[u8]) {
        self.initiator.send(message, None, 0).expect("room");
        self.initiator.flush().expect("in memory");
        assert!(self.initiator.step(), "the target has a receive");
        self.hear().expect("open");
    }

    /// The hub tells of completions.
    fn hear(&mut self) -> Result<(), Ended> {
        let (result, loan) = (RDMA_READY, Loan::None);
        self.queue.completed(0, Completion { result, loan })
    }

    /// The initiator sends a command for so many bytes.
    fn command(
        &mut self,
        flags: u8,
        expected: u32,
        tags: (Option<Tag>, Option<Tag>),
        data: &[u8],
    ) -> (Claim, Transfer) {
        let mut pdu = pdu(0x01, flags, data);
        pdu[16..20].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[20..24].copy_from_slice(&expected.to_be_bytes());
        pdu[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.cmd_sn += 1;
        self.send(&message(tags.0, tags.1, &pdu));
        match self.queue.next() {
            Ok(Some(Event::Command {
                claim, transfer, ..
            })) => (claim, transfer),
            other => panic!("not a command: {other:?}"),
        }
    }

    fn read(&mut self, bytes: u32, tag: Tag) -> Claim {
        let (claim, transfer) = self.command(READ, bytes, (None, Some(tag)), &[]);
        assert_eq!(transfer, Transfer::Send { bytes });
        claim
    }

    /// Hands everything to the device, which carries it all out.
    fn settle(&mut self) {
        self.queue.flush(&mut self.shard).expect("in memory");
        while self
            .queue
            .wire
            .pair
            .as_ref()
            .is_some_and(SimulatedPair::step)
        {}
        self.hear().expect("open");
    }

    fn posted(&self) -> usize {
        self.queue.wire.pair.as_ref().expect("open").posted()
    }

    /// Gives a write its buffer, and reads its data.
    fn fetch(&mut self, claim: &Claim, bytes: usize) {
        let buf = self.shard.take_buf(bytes).expect("room");
        let incoming = Incoming::Awaited(buf, bytes);
        self.queue.receive_into(claim.slot(), incoming);
        let (target, mut out) = self.queue.speak();
        target.fetch(claim.slot(), &mut out);
    }

    /// Answers GOOD. True: the slot is free.
    fn answer(&mut self, claim: Claim, moved: u32) -> bool {
        let (target, mut out) = self.queue.speak();
        target.answer(claim, &Answer::good(moved), &mut out).1
    }

    fn answer_with(&mut self, claim: Claim, bytes: &[u8]) {
        let mut buf = self.shard.take_buf(bytes.len()).expect("room");
        buf.bytes_mut().copy_from_slice(bytes);
        let slot = claim.slot();
        self.queue.send_from(slot, Outgoing::Buf(buf, 0));
        assert!(self.answer(claim, u32::try_from(bytes.len()).expect("short")));
        assert!(self.queue.release(slot).is_none());
    }

    /// PDUs that the initiator has, and the keys that they have made invalid.
    fn responses(&mut self) -> Vec<(Vec<u8>, Option<u32>)> {
        let mut all = Vec::new();
        while let Some(done) = self.initiator.next_done() {
            if let Done::Received {
                slot,
                bytes,
                invalidated,
            } = done
            {
                let message = self.initiator.message(slot, bytes);
                all.push((message[28..].to_vec(), invalidated));
                self.initiator.post_receive(slot);
            }
        }
        self.initiator.flush().expect("in memory");
        all
    }
}

/// Key and address of memory of the initiator.
type Tag = (u32, u64);

fn pdu(opcode: u8, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut pdu = vec![0; 48];
    (pdu[0], pdu[1]) = (opcode, flags);
    let length = u32::try_from(data.len()).expect("short").to_be_bytes();
    pdu[5..8].copy_from_slice(&length[1..]);
    pdu.extend_from_slice(data);
    pdu
}

fn message(write: Option<Tag>, read: Option<Tag>, pdu: &[u8]) -> Vec<u8> {
    let flags = |tag: Option<Tag>, bit| if tag.is_some() { bit } else { 0 };
    let mut message = vec![0x10 | flags(write, 8) | flags(read, 4), 0, 0, 0];
    for tag in [write, read] {
        let (key, address) = tag.unwrap_or_default();
        message.extend(key.to_be_bytes());
        message.extend(address.to_be_bytes());
    }
    message.extend_from_slice(pdu);
    message
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..=250).cycle().take(bytes).collect()
}

#[test]
fn all_receives_are_posted_before_the_initiator_learns_of_its_session() {
    let mut stage = Stage::new(20, 4);
    stage.log_in("SessionType=Normal\0TargetName=iqn.2026-01.example:disk\0");
    assert_eq!(stage.posted(), FIRST_RECEIVES - 1);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    assert!(stage.responses().is_empty(), "the answer is on its way");
    assert_eq!(stage.posted(), RECEIVES);
    let mut stage = Stage::new(20, 4);
    stage.log_in("SessionType=Discovery\0");
    stage.settle();
    assert_eq!(stage.posted(), FIRST_RECEIVES, "discovery needs no more");
}

#[test]
fn a_read_writes_its_data_before_its_response_and_makes_the_key_invalid() {
    let mut stage = Stage::logged_in(20, 4);
    stage.initiator.expose(7, vec![0; 1024]);
    let claim = stage.read(512, (7, 256));
    stage.answer_with(claim, &[0xA5; 512]);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    let pair = stage.queue.wire.pair.as_ref().expect("open");
    assert!(pair.step(), "the data");
    let memory = stage.initiator.exposed(7).expect("still valid");
    assert_eq!(memory[..256], [0; 256]);
    assert_eq!(memory[256..768], [0xA5; 512]);
    assert!(stage.responses().is_empty());
    stage.settle();
    let responses = stage.responses();
    assert_eq!(responses.len(), 1);
    assert_eq!((responses[0].0[0], responses[0].1), (0x21, Some(7)));
    assert_eq!(stage.shard.buffer_bytes_in_use(), 0);
}

#[test]
fn a_write_has_its_immediate_data_and_what_is_read_behind_it() {
    let mut stage = Stage::logged_in(20, 4);
    let data = pattern(3000);
    let memory = [&[0xEE; 100][..], &data[1000..]].concat();
    stage.initiator.expose(9, memory);
    let tags = (Some((9, 100)), None);
    let (claim, transfer) = stage.command(WRITE, 3000, tags, &data[..1000]);
    let (bytes, arriving) = (3000, true);
    assert_eq!(transfer, Transfer::Fetch { bytes, arriving });
    stage.fetch(&claim, 3000);
    assert_eq!(stage.queue.next().expect("open"), None);
    stage.settle();
    let (slot, intact) = (claim.slot(), true);
    let fetched = Some(Event::Fetched { slot, intact });
    assert_eq!(stage.queue.next().expect("open"), fetched);
    let incoming = stage.queue.take_incoming(slot);
    assert_eq!(incoming.buf().expect("a buffer").bytes(), data);
    drop(incoming);
    assert!(stage.answer(claim, 3000));
    stage.settle();
    assert_eq!(stage.responses()[0].1, Some(9));
    assert_eq!(stage.shard.buffer_bytes_in_use(), 0);
}

#[test]
fn a_short_write_is_used_where_it_was_received() {
    let mut stage = Stage::logged_in(20, 4);
    let data = pattern(8192);
    let (claim, transfer) = stage.command(WRITE, 8192, (None, None), &data);
    assert_eq!(transfer, Transfer::Inline { bytes: 8192 });
    assert_eq!(stage.queue.in_place(), data);
    assert_eq!(stage.posted(), RECEIVES - 1);
    assert!(stage.answer(claim, 8192));
    stage.queue.flush(&mut stage.shard).expect("in memory");
    assert_eq!(stage.posted(), RECEIVES, "before the response arrives");
    stage.settle();
    assert_eq!(stage.responses()[0].1, None);
}

#[test]
fn a_write_without_memory_for_its_data_is_answered_and_its_data_is_dropped() {
    let mut stage = Stage::logged_in(20, 4);
    stage.initiator.expose(9, vec![0; 4096]);
    let (claim, _) = stage.command(WRITE, 4096, (Some((9, 0)), None), &[1; 512]);
    let slot = claim.slot();
    assert!(!stage.answer(claim, 0), "its immediate data is arriving");
    let released = Some(Event::Released { slot });
    assert_eq!(stage.queue.next().expect("open"), released);
    stage.settle();
    assert_eq!(stage.responses().len(), 1);
    let claim = stage.read(512, (9, 0));
    assert_eq!(claim.slot(), slot, "the slot is free");
}

#[test]
fn answers_that_find_no_room_wait_and_all_leave_in_order() {
    let mut stage = Stage::logged_in(3, 4);
    let mut claims = Vec::new();
    for index in 0..4_u32 {
        stage.initiator.expose(20 + index, vec![0; 512]);
        claims.push(stage.read(512, (20 + index, 0)));
    }
    for (byte, claim) in (1..).zip(claims) {
        stage.answer_with(claim, &[byte; 512]);
    }
    assert!(stage.queue.has_unsent() && !stage.queue.is_drained());
    let mut order = Vec::new();
    while !stage.queue.is_drained() {
        stage.settle();
        order.extend(stage.responses().into_iter().map(|(_, key)| key));
    }
    assert_eq!(order, [20, 21, 22, 23].map(Some));
}

#[test]
fn rdma_reads_wait_for_others_and_answers_do_not_wait_for_them() {
    let mut stage = Stage::logged_in(20, 1);
    let mut writes = Vec::new();
    for key in 30..33 {
        stage.initiator.expose(key, vec![0x77; 512]);
        let (claim, _) = stage.command(WRITE, 512, (Some((key, 0)), None), &[]);
        stage.fetch(&claim, 512);
        writes.push(claim);
    }
    let claim = stage.command(0x81, 0, (None, None), &[]).0;
    assert!(stage.answer(claim, 0));
    stage.queue.flush(&mut stage.shard).expect("in memory");
    let posted = stage.queue.wire.pair.as_ref().expect("open").requests();
    assert_eq!(posted, 2, "one RDMA READ and the answer");
    for claim in writes {
        stage.settle();
        let (slot, intact) = (claim.slot(), true);
        let fetched = Some(Event::Fetched { slot, intact });
        assert_eq!(stage.queue.next().expect("open"), fetched);
        assert!(stage.answer(claim, 512));
    }
    stage.settle();
    assert_eq!(stage.responses().len(), 4);
}

#[test]
fn an_answer_to_a_write_whose_data_is_on_its_way_follows_the_data() {
    let mut stage = Stage::logged_in(20, 4);
    stage.initiator.expose(3, vec![0x77; 512]);
    let (claim, _) = stage.command(WRITE, 512, (Some((3, 0)), None), &[]);
    let slot = claim.slot();
    stage.fetch(&claim, 512);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    assert!(!stage.answer(claim, 512));
    stage.queue.flush(&mut stage.shard).expect("in memory");
    let pair = stage.queue.wire.pair.as_ref().expect("open");
    assert!(pair.step() && !pair.step(), "only the RDMA READ");
    stage.hear().expect("open");
    let released = Some(Event::Released { slot });
    assert_eq!(stage.queue.next().expect("open"), released);
    stage.settle();
    assert_eq!(stage.responses()[0].1, Some(3));
}

#[test]
fn a_peer_that_pings_without_end_is_not_served_meanwhile() {
    let mut stage = Stage::logged_in(1, 4);
    let mut ping = pdu(0x40, 0x80, &[0x50; 100]);
    ping[16..20].copy_from_slice(&[0; 4]);
    ping[20..24].copy_from_slice(&[0xFF; 4]);
    let mut sent = 0;
    while !stage.queue.backlogged() {
        stage.send(&message(None, None, &ping));
        assert_eq!(stage.queue.next().expect("open"), None);
        stage.queue.flush(&mut stage.shard).expect("in memory");
        sent += 1;
        assert!(sent < 64, "answers wait without end");
    }
    let mut answers = 0;
    while !stage.queue.is_drained() {
        stage.settle();
        answers += stage.responses().len();
    }
    assert_eq!(answers, sent);
    assert!(!stage.queue.backlogged());
}

#[test]
fn a_wrong_key_ends_the_connection_with_its_reason_and_frees_all_memory() {
    let mut stage = Stage::logged_in(20, 4);
    let claim = stage.read(512, (99, 0));
    stage.answer_with(claim, &[1; 512]);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    assert!(stage.queue.wire.pair.as_ref().expect("open").step());
    match stage.hear() {
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
fn an_initiator_that_goes_leaves_nothing_behind() {
    let mut stage = Stage::logged_in(20, 4);
    stage.initiator.expose(3, vec![0x77; 512]);
    let (claim, _) = stage.command(WRITE, 512, (Some((3, 0)), None), &[]);
    stage.fetch(&claim, 512);
    stage.initiator.disconnect();
    assert!(matches!(stage.hear(), Err(Ended::Closed)));
    stage.queue.close();
    let _late = stage.answer(claim, 512);
    assert_eq!(stage.shard.buffer_bytes_in_use(), 0);
}

#[test]
fn a_wrong_message_gets_the_standards_answer_and_nothing_follows() {
    let mut stage = Stage::logged_in(20, 4);
    stage.send(&[0x10; 75]);
    assert!(matches!(stage.queue.next(), Err(Ended::Violation(_))));
    stage.queue.discard();
    stage.send(&message(None, None, &pdu(0x40, 0x80, &[])));
    assert_eq!(stage.queue.next().expect("it drops all"), None);
    stage.settle();
    assert_eq!(stage.responses()[0].0[0], 0x3F, "Reject");
    assert!(stage.queue.is_drained());
}

#[test]
fn data_that_an_initiator_sends_while_the_target_reads_it_ends_the_connection() {
    let mut stage = Stage::logged_in(20, 4);
    stage.initiator.expose(3, vec![0x77; 512]);
    let (claim, _) = stage.command(WRITE, 512, (Some((3, 0)), None), &[]);
    stage.fetch(&claim, 512);
    stage.queue.flush(&mut stage.shard).expect("in memory");
    // The first target transfer tag of a slot is easy to guess.
    let ttt = u32::from(claim.slot().0) << 16 | 1;
    let mut data_out = pdu(0x05, 0x80, &[0x11; 512]);
    data_out[16..20].copy_from_slice(&(stage.cmd_sn - 1).to_be_bytes());
    data_out[20..24].copy_from_slice(&ttt.to_be_bytes());
    stage.send(&message(None, None, &data_out));
    assert!(matches!(stage.queue.next(), Err(Ended::Violation(_))));
    stage.queue.close();
    let _late = stage.answer(claim, 512);
    assert_eq!(stage.shard.buffer_bytes_in_use(), 0);
}

#[test]
fn a_connection_ends_at_both_ends_after_the_last_message() {
    let mut stage = Stage::logged_in(20, 4);
    stage.queue.finish();
    assert!(matches!(stage.hear(), Err(Ended::Closed)));
    let told = stage.initiator.next_done();
    assert!(matches!(told, Some(Done::Failed(failure)) if failure.is_flush()));
}
