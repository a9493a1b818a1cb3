//! A host on a blocking socket that sends what a test says, right or wrong. It checks every answer
//! as the Linux host does.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use fabrix_proto::nvme::fabrics::{CNTLID_DYNAMIC, Connect, Property};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{SglDescriptor, Status, SubmissionEntry};
use fabrix_sim::{Place, Stream};
use zerocopy::IntoBytes;

use super::wire::{
    C2H_DATA, C2H_TERM, CAPSULE, DDGST, Digests, HDGST, ICRESP, LAST, Pdu, R2T, RESPONSE, SUCCESS,
    crc32c, h2c_data, icreq, pdu,
};
use super::{HOST_NQN, NQN, PATIENCE};

/// Transport of a command's data.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    None,
    /// In the capsule.
    Inline(&'a [u8]),
    /// By R2T.
    Fetch(&'a [u8]),
    /// From the target.
    Expect(u32),
}

/// The end of a command.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: Status,
    pub result: u64,
    pub sq_head: u16,
    pub data: Vec<u8>,
    /// True if the command ended with its data: no CapsuleResp came.
    pub by_flag: bool,
    /// Number of bytes that each R2T requested.
    pub r2ts: Vec<u32>,
}

/// The target has closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

#[derive(Default)]
struct Pending {
    write: Vec<u8>,
    data: Vec<u8>,
    expected: usize,
    r2ts: Vec<u32>,
}

/// One queue of a host.
pub struct Host {
    pub stream: Stream,
    pub digests: Digests,
    /// MAXH2CDATA.
    pub max_h2c_bytes: usize,
    pub controller: u16,
    /// All received bytes, if they are recorded.
    pub seen: Option<Vec<u8>>,
    next_id: u16,
    pending: BTreeMap<u16, Pending>,
    answers: BTreeMap<u16, Answer>,
}

impl Host {
    /// A new TCP connection, before the first PDU.
    pub fn dial(address: SocketAddr) -> Self {
        Self::over(
            Place::current()
                .connect(address)
                .expect("the target listens"),
        )
    }

    pub fn over(mut stream: Stream) -> Self {
        stream.set_patience(PATIENCE);
        Self {
            stream,
            digests: Digests::NONE,
            max_h2c_bytes: 0,
            controller: 0,
            seen: None,
            next_id: 0x1000,
            pending: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }

    /// A host that only builds PDUs, with these digests.
    pub fn over_nothing(digests: Digests) -> Self {
        let listener = Place::current().listen();
        let mut host = Self::dial(listener.address());
        host.digests = digests;
        host
    }

    /// An admin queue, ready for commands.
    pub fn admin(address: SocketAddr) -> Self {
        let mut host = Self::dial(address);
        host.open(Digests::NONE);
        host.connect_admin();
        host.enable();
        host
    }

    /// An I/O queue of a controller, without flow control, as Fabrix's host requests it.
    pub fn io(address: SocketAddr, controller: u16, qid: u16) -> Self {
        Self::io_with(address, controller, qid, Digests::NONE)
    }

    pub fn io_with(address: SocketAddr, controller: u16, qid: u16, digests: Digests) -> Self {
        let mut host = Self::dial(address);
        host.open(digests);
        let answer = host.connect(&Connect {
            controller_id: controller,
            queue_id: qid,
            disable_sq_flow_control: true,
            ..wish()
        });
        assert_eq!(answer.status, Status::SUCCESS, "I/O queue {qid}");
        host.controller = controller;
        host
    }

    /// ICReq and ICResp.
    pub fn open(&mut self, digests: Digests) {
        self.send(&icreq(digests));
        let answer = self.receive().expect("ICResp");
        assert_eq!((answer.kind, answer.header.len()), (ICRESP, 128));
        assert_eq!(answer.u16(8), 0, "PFV");
        assert_eq!(answer.header[10], 0, "CPDA: Linux insists");
        assert_eq!(answer.header[11], digests.byte(), "DGST: Linux insists");
        let max_h2c_bytes = answer.u32(12);
        assert!(
            max_h2c_bytes >= 4096 && max_h2c_bytes.is_multiple_of(4),
            "Linux insists"
        );
        self.max_h2c_bytes = max_h2c_bytes as usize;
        self.digests = digests;
    }

    /// Connect of the admin queue.
    pub fn connect_admin(&mut self) {
        let answer = self.connect(&wish());
        assert_eq!(answer.status, Status::SUCCESS, "Connect");
        self.controller = u16::try_from(answer.result & 0xffff).expect("16 bits");
        assert_eq!(answer.result >> 16, 0, "no authentication is asked for");
    }

    pub fn connect(&mut self, connect: &Connect) -> Answer {
        let (entry, data) = connect.to_wire();
        self.run(entry, Data::Inline(data.as_bytes()))
    }

    /// CC.EN, and CSTS.RDY.
    pub fn enable(&mut self) {
        assert_eq!(
            self.property_set(Property::CC, CC_ENABLE).status,
            Status::SUCCESS
        );
        assert_eq!(self.property(Property::CSTS) & 1, 1, "CSTS.RDY");
    }

    pub fn property(&mut self, property: Property) -> u64 {
        let answer = self.run(SubmissionEntry::property_get(property), Data::None);
        assert_eq!(answer.status, Status::SUCCESS, "{property:?}");
        answer.result
    }

    pub fn property_set(&mut self, property: Property, value: u64) -> Answer {
        self.run(SubmissionEntry::property_set(property, value), Data::None)
    }

    /// Writes in the capsule up to 8 KiB, and by R2T above.
    pub fn write(&mut self, nsid: u32, lba: u64, data: &[u8]) {
        let answer = self.try_write(nsid, lba, data, 512);
        assert_eq!(answer.status, Status::SUCCESS, "write at {lba}");
    }

    pub fn try_write(&mut self, nsid: u32, lba: u64, data: &[u8], block_bytes: usize) -> Answer {
        let entry = SubmissionEntry::write(nsid, lba, blocks(data.len(), block_bytes), false);
        self.run(entry, by_size(data))
    }

    /// Reads blocks of 512 bytes.
    pub fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> Vec<u8> {
        let answer = self.try_read(nsid, lba, blocks, 512);
        assert_eq!(answer.status, Status::SUCCESS, "read at {lba}");
        answer.data
    }

    pub fn try_read(&mut self, nsid: u32, lba: u64, blocks: u32, block_bytes: u32) -> Answer {
        let entry = SubmissionEntry::read(nsid, lba, blocks);
        self.run(entry, Data::Expect(blocks * block_bytes))
    }

    /// Sends a command and waits for its answer.
    pub fn run(&mut self, entry: SubmissionEntry, data: Data<'_>) -> Answer {
        let id = self.submit(entry, data);
        self.finish(id)
    }

    /// Runs a command that may fail. A failed command brings no data.
    pub fn run_anyway(&mut self, entry: SubmissionEntry, data: Data<'_>) -> Answer {
        let id = self.submit(entry, data);
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            self.step().expect("the connection stays");
        }
    }

    /// Sends a command under a new id.
    pub fn submit(&mut self, entry: SubmissionEntry, data: Data<'_>) -> u16 {
        let id = self.fresh_id();
        let bytes = self.capsule(entry, id, data);
        self.expect_answer(id, data);
        self.send(&bytes);
        id
    }

    /// A command id that is not in use.
    pub fn fresh_id(&mut self) -> u16 {
        // Sparse, like Linux's ids.
        self.next_id = self.next_id.wrapping_add(0x1003);
        self.next_id
    }

    /// Allows an answer to `id` from now on.
    pub fn expect_answer(&mut self, id: u16, data: Data<'_>) {
        let mut pending = Pending::default();
        match data {
            Data::Fetch(bytes) => pending.write = bytes.to_vec(),
            Data::Expect(bytes) => pending.expected = bytes as usize,
            Data::None | Data::Inline(_) => {}
        }
        self.pending.insert(id, pending);
    }

    /// Forbids an answer to `id` from now on.
    pub fn forget(&mut self, id: u16) {
        self.pending.remove(&id);
    }

    /// The CapsuleCmd of a command, with the descriptor that its data needs.
    pub fn capsule(&self, entry: SubmissionEntry, id: u16, data: Data<'_>) -> Vec<u8> {
        let mut entry = entry;
        entry.command_id.set(id);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a small write");
        entry.sgl = match data {
            Data::None => SglDescriptor::transport(0),
            Data::Inline(bytes) => SglDescriptor::in_capsule(length(bytes)),
            Data::Fetch(bytes) => SglDescriptor::transport(length(bytes)),
            Data::Expect(bytes) => SglDescriptor::transport(bytes),
        };
        let carried = match data {
            Data::Inline(bytes) => bytes,
            _ => &[],
        };
        self.raw_capsule(&entry, carried)
    }

    /// A CapsuleCmd with the entry unchanged.
    pub fn raw_capsule(&self, entry: &SubmissionEntry, carried: &[u8]) -> Vec<u8> {
        pdu(CAPSULE, 0, &entry.to_array(), carried, self.digests)
    }

    /// Waits for the answer to a command, and serves the target's R2Ts meanwhile.
    pub fn finish(&mut self, id: u16) -> Answer {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            self.step().expect("the connection stays");
        }
    }

    /// Waits for any answer.
    pub fn next_answer(&mut self) -> Result<(u16, Answer), Closed> {
        loop {
            if let Some(answer) = self.answers.pop_first() {
                return Ok(answer);
            }
            self.step()?;
        }
    }

    /// Receives one PDU and handles it.
    fn step(&mut self) -> Result<(), Closed> {
        let pdu = self.receive()?;
        match pdu.kind {
            R2T => self.feed(&pdu),
            C2H_DATA => self.take_data(&pdu),
            RESPONSE => self.take_response(&pdu),
            C2H_TERM => panic!("TermReq, FES {} FEI {}", pdu.u16(8), pdu.u32(10)),
            kind => panic!("PDU of type {kind:#x}"),
        }
        Ok(())
    }

    /// Sends the data that an R2T requests, in pieces of MAXH2CDATA.
    pub fn feed(&mut self, r2t: &Pdu) {
        let (id, tag) = (r2t.u16(8), r2t.u16(10));
        let (offset, length) = (r2t.u32(12) as usize, r2t.u32(16) as usize);
        let pending = self
            .pending
            .get_mut(&id)
            .expect("R2T for a command in progress");
        assert!(
            length > 0 && offset + length <= pending.write.len(),
            "R2T in bounds"
        );
        pending.r2ts.push(r2t.u32(16));
        let write = std::mem::take(&mut pending.write);
        let mut sent = offset;
        for piece in write[offset..offset + length].chunks(self.max_h2c_bytes) {
            let at = u32::try_from(sent).expect("a small write");
            sent += piece.len();
            let last = if sent == offset + length { LAST } else { 0 };
            self.send(&h2c_data(id, tag, at, piece, last, self.digests));
        }
        self.pending.get_mut(&id).expect("still in progress").write = write;
    }

    fn take_data(&mut self, pdu: &Pdu) {
        let id = pdu.u16(8);
        let pending = self
            .pending
            .get_mut(&id)
            .expect("data for a command in progress");
        assert_eq!(pdu.u32(12) as usize, pending.data.len(), "DATAO goes on");
        assert_eq!(pdu.u32(16) as usize, pdu.data.len(), "DATAL");
        pending.data.extend(&pdu.data);
        assert!(
            pending.data.len() <= pending.expected,
            "more data than asked for"
        );
        if pdu.flags & SUCCESS != 0 {
            assert!(pdu.flags & LAST != 0, "SUCCESS without LAST");
            self.answer(id, Status::SUCCESS, 0, u16::MAX, true);
        }
    }

    fn take_response(&mut self, pdu: &Pdu) {
        let result = u64::from(pdu.u32(12)) << 32 | u64::from(pdu.u32(8));
        let status = Status::from_field(pdu.u16(22));
        self.answer(pdu.u16(20), status, result, pdu.u16(16), false);
    }

    fn answer(&mut self, id: u16, status: Status, result: u64, sq_head: u16, by_flag: bool) {
        let pending = self.pending.remove(&id);
        let pending = pending.unwrap_or_else(|| panic!("an answer to {id:#x}, which nobody asked"));
        if status.is_success() {
            assert_eq!(
                pending.data.len(),
                pending.expected,
                "all data before the answer"
            );
        }
        let (data, r2ts) = (pending.data, pending.r2ts);
        let answer = Answer {
            status,
            result,
            sq_head,
            data,
            by_flag,
            r2ts,
        };
        assert!(
            self.answers.insert(id, answer).is_none(),
            "two answers to {id:#x}"
        );
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the target reads");
    }

    /// Sends bytes to a target that may close the connection meanwhile, or has closed it already.
    pub fn send_anyway(&mut self, bytes: &[u8]) {
        let _hung_up = self.stream.write_all(bytes);
    }

    /// Receives the next PDU, and checks its lengths and digests.
    pub fn receive(&mut self) -> Result<Pdu, Closed> {
        let mut common = [0; 8];
        self.fill(&mut common)?;
        let [kind, flags, header_bytes, data_offset, length @ ..] = common;
        let (header_bytes, data_offset) = (usize::from(header_bytes), usize::from(data_offset));
        let total = u32::from_le_bytes(length) as usize;
        assert!((8..=2 << 20).contains(&total), "PLEN {total}");
        let mut bytes = common.to_vec();
        bytes.resize(total, 0);
        self.fill(&mut bytes[8..])?;
        let setup = matches!(kind, ICRESP | C2H_TERM);
        assert_eq!(header_bytes, if kind == ICRESP { 128 } else { 24 }, "HLEN");
        assert_eq!(flags & HDGST != 0, self.digests.header && !setup, "HDGST");
        let header = bytes[..header_bytes].to_vec();
        let mut end = header_bytes;
        if flags & HDGST != 0 {
            let digest = bytes[end..end + 4].try_into().expect("four");
            assert_eq!(u32::from_le_bytes(digest), crc32c(&header), "header digest");
            end += 4;
        }
        let data = match kind {
            C2H_DATA => {
                assert_eq!(
                    data_offset, end,
                    "PDO: no padding for a host that asked for none"
                );
                self.checked_data(flags, &bytes[data_offset..])
            }
            C2H_TERM => bytes[end..].to_vec(),
            _ => {
                assert_eq!(total, end, "no data in a PDU of type {kind:#x}");
                Vec::new()
            }
        };
        Ok(Pdu {
            kind,
            flags,
            header,
            data,
        })
    }

    fn checked_data(&self, flags: u8, bytes: &[u8]) -> Vec<u8> {
        assert_eq!(flags & DDGST != 0, self.digests.data, "DDGST");
        if !self.digests.data {
            return bytes.to_vec();
        }
        let (data, digest) = bytes.split_at(bytes.len() - 4);
        let digest = u32::from_le_bytes(digest.try_into().expect("four"));
        assert_eq!(digest, crc32c(data), "data digest");
        data.to_vec()
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Closed> {
        match self.stream.read_exact(bytes) {
            Ok(()) => {}
            Err(error) if is_end(error.kind()) => return Err(Closed),
            Err(error) => panic!("nothing comes from the target: {error}"),
        }
        if let Some(seen) = &mut self.seen {
            seen.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Expects that the target ends the connection with this reason. Returns FEI and the header
    /// that the target quotes.
    pub fn expect_term(&mut self, status: u16, what: &str) -> (u32, Vec<u8>) {
        loop {
            match self.receive() {
                Ok(pdu) if pdu.kind == C2H_TERM => {
                    assert_eq!(pdu.u16(8), status, "FES of: {what}");
                    assert!(pdu.data.len() <= 128, "at most 128 bytes are quoted");
                    return (pdu.u32(10), pdu.data);
                }
                Ok(pdu) => assert!(
                    matches!(pdu.kind, R2T | RESPONSE | C2H_DATA),
                    "PDU {pdu:?} instead of TermReq: {what}"
                ),
                Err(Closed) => panic!("closed without TermReq: {what}"),
            }
        }
    }

    /// Expects a termination request and closes this side, as a host should. Drops all PDUs before
    /// it.
    pub fn expect_close_politely(&mut self) {
        let pdu = loop {
            match self.receive() {
                Ok(pdu) if pdu.kind == C2H_TERM => break Ok(pdu),
                Ok(_) => {}
                Err(closed) => break Err(closed),
            }
        };
        assert!(pdu.is_ok(), "closed without TermReq");
        self.stream.shutdown(Shutdown::Write);
        self.expect_close();
    }

    /// Expects that the target closes the connection. Drops all PDUs before that.
    pub fn expect_close(&mut self) {
        while self.receive().is_ok() {}
    }
}

/// A Connect of the admin queue as Linux sends it, without keep-alive.
pub fn wish() -> Connect {
    Connect {
        queue_id: 0,
        queue_entries: 32,
        keep_alive_ms: 0,
        disable_sq_flow_control: false,
        host_id: [7; 16],
        controller_id: CNTLID_DYNAMIC,
        subsystem: Nqn::new(NQN).expect("an NQN"),
        host: Nqn::new(HOST_NQN).expect("an NQN"),
    }
}

/// Data in the capsule up to 8 KiB, by R2T above.
pub fn by_size(data: &[u8]) -> Data<'_> {
    if data.len() <= 8192 {
        Data::Inline(data)
    } else {
        Data::Fetch(data)
    }
}

pub fn blocks(bytes: usize, block_bytes: usize) -> u32 {
    u32::try_from(bytes / block_bytes).expect("a small write")
}

fn is_end(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::UnexpectedEof | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe
    )
}

/// CC: enabled, entries of 64 and 16 bytes.
pub const CC_ENABLE: u64 = 0x0046_0001;
/// CC: not enabled.
pub const CC_DISABLE: u64 = 0x0046_0000;
/// CC.SHN: a normal shutdown.
pub const CC_SHUTDOWN: u64 = 0x0046_4001;
