//! One connection of the fake target: reads PDUs and answers them. A test's script may change the
//! answers.
//!
//! Uses a blocking socket and a thread. Checks every PDU of the host and notes violations.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabrix_proto::nvme::command::DatasetRange;
use fabrix_proto::nvme::fabrics::{ConnectCommand, ConnectData, Property, PropertyCommand};
use fabrix_proto::nvme::spec::{
    AdminOpcode, CompletionEntry, FabricsType, Opcode, Status, SubmissionEntry,
};
use fabrix_proto::nvme::tcp::pdu::{
    CommandHeader, CommonHeader, DataHeader, Digests, FLAG_LAST, FLAG_SUCCESS, InitializeRequest,
    InitializeResponse, PduType, R2tHeader, ResponseHeader, TerminateRequest,
};
use fabrix_sim::Stream;
use fabrix_transport::pass::crc32c;
use zerocopy::{FromBytes, IntoBytes};

use super::fake::{Greeting, Shared};
use super::pages;

/// What becomes of a command after a script has seen it.
pub enum Then {
    /// What an honest target does.
    Usual,
    /// The script has done all there is to do.
    Done,
}

/// A command and what came with it.
pub struct Command {
    pub entry: SubmissionEntry,
    pub cid: u16,
    /// In-capsule data.
    pub data: Vec<u8>,
    /// Which command of this connection it is, from 0.
    pub number: usize,
}

pub struct Link {
    pub shared: Arc<Shared>,
    pub stream: Stream,
    /// Which connection of the fake it is, from 0.
    pub number: usize,
    pub qid: Option<u16>,
    pub digests: Digests,
    /// Bytes that may still be sent before the connection is cut.
    pub budget: u64,
    controller: u16,
    commands: usize,
    outstanding: HashSet<u16>,
    entries: usize,
    incoming: HashMap<u16, Incoming>,
    next_tag: u16,
    compare: Option<(Command, Vec<u8>)>,
    ready: bool,
}

/// A write whose data comes by R2T.
struct Incoming {
    command: Command,
    bytes: usize,
    data: Vec<u8>,
}

impl Link {
    pub fn new(shared: Arc<Shared>, stream: Stream, number: usize) -> Self {
        let budget = (shared.script.budget)(number);
        Self {
            shared,
            stream,
            number,
            qid: None,
            digests: Digests::default(),
            budget,
            controller: 0,
            commands: 0,
            outstanding: HashSet::new(),
            entries: usize::MAX,
            incoming: HashMap::new(),
            next_tag: 1,
            compare: None,
            ready: false,
        }
    }

    /// Speaks until one side ends it.
    pub fn serve(mut self) {
        let ended = self.converse();
        self.stream.shutdown(Shutdown::Both);
        if let (Some(qid), true) = (self.qid, self.controller != 0) {
            self.shared.connection_ended(self.controller, qid);
        }
        drop(ended);
    }

    fn converse(&mut self) -> io::Result<()> {
        match (self.shared.script.greeting)(self.number) {
            Greeting::Serve => {}
            Greeting::Close => return Ok(()),
            Greeting::Silence => return self.swallow(),
            Greeting::Say(bytes) => {
                self.send(&bytes)?;
                return self.swallow();
            }
        }
        self.initialize()?;
        loop {
            let mut common = [0; 8];
            self.stream.read_exact(&mut common)?;
            let common = CommonHeader::read_from_bytes(&common).expect("8 bytes");
            match common.pdu_type {
                PduType::COMMAND => self.capsule(common)?,
                PduType::HOST_DATA => self.host_data(common)?,
                PduType::HOST_TERMINATE => return self.goodbye(common),
                other => {
                    self.shared
                        .fault(format!("the host sent PDU type {:#04x}", other.0));
                    return Ok(());
                }
            }
        }
    }

    fn initialize(&mut self) -> io::Result<()> {
        let mut bytes = [0; 128];
        self.stream.read_exact(&mut bytes)?;
        let request = InitializeRequest::read_from_bytes(&bytes).expect("128 bytes");
        self.digests = Digests::from_wire(request.digests);
        let mut response = InitializeResponse::new(0, self.digests, self.shared.script.max_h2c);
        (self.shared.script.icresp)(&mut response);
        self.send(response.as_bytes())
    }

    /// Reads and says nothing until the host gives up.
    pub fn swallow(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        while self.stream.read(&mut bytes)? > 0 {}
        Ok(())
    }

    /// Sends as much as the budget allows, then cuts the connection.
    ///
    /// A host that reads no more is no error: what it said last is still to be read.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let most = usize::try_from(self.budget)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let _the_next_read_tells = self.stream.write_all(&bytes[..most]);
        self.budget -= most as u64;
        if most < bytes.len() {
            return Err(self.cut());
        }
        Ok(())
    }

    /// Ends the connection now.
    pub fn cut(&mut self) -> io::Error {
        self.shared.cuts.fetch_add(1, Ordering::Relaxed);
        self.stream.shutdown(Shutdown::Both);
        io::ErrorKind::ConnectionAborted.into()
    }

    /// A header and its digest.
    pub fn send_header(&mut self, header: &[u8]) -> io::Result<()> {
        let mut bytes = header.to_vec();
        if self.digests.header {
            bytes.extend(crc32c(header).to_le_bytes());
        }
        self.send(&bytes)
    }

    pub fn respond(&mut self, cid: u16, status: Status, result: u64) -> io::Result<()> {
        let header = self.response(cid, status, result);
        self.send_header(header.as_bytes())
    }

    fn response(&mut self, cid: u16, status: Status, result: u64) -> ResponseHeader {
        self.outstanding.remove(&cid);
        let mut entry = CompletionEntry::new(status, result);
        entry.command_id = cid.into();
        let common = CommonHeader::without_data(PduType::RESPONSE, self.digests);
        ResponseHeader {
            common,
            entry: entry.to_array(),
        }
    }

    /// One C2HData, as it is said.
    pub fn send_data(&mut self, cid: u16, offset: u32, data: &[u8], flags: u8) -> io::Result<()> {
        self.send_data_with(cid, offset, data, flags, 0)
    }

    /// The same, with its data digest spoiled by `spoil`.
    pub fn send_data_with(
        &mut self,
        cid: u16,
        offset: u32,
        data: &[u8],
        flags: u8,
        spoil: u32,
    ) -> io::Result<()> {
        if flags & FLAG_SUCCESS != 0 {
            self.outstanding.remove(&cid);
        }
        let bytes = u32::try_from(data.len()).expect("small");
        let kind = PduType::CONTROLLER_DATA;
        let mut common = CommonHeader::with_data(kind, self.digests, 0, bytes).expect("small");
        common.flags |= flags;
        let header = DataHeader::new(common, cid, 0, offset, bytes);
        self.send_header(header.as_bytes())?;
        let mut body = data.to_vec();
        if self.digests.data {
            body.extend((crc32c(data) ^ spoil).to_le_bytes());
        }
        self.send(&body)
    }

    /// Data in pieces, and the end: in the last piece for even command ids, in a response for odd
    /// ones.
    pub fn send_all(&mut self, cid: u16, data: &[u8]) -> io::Result<()> {
        let with_success = cid.is_multiple_of(2);
        let mut offset = 0;
        let pieces = data.len().div_ceil(PIECE);
        for (index, piece) in data.chunks(PIECE).enumerate() {
            let last = index + 1 == pieces;
            let success = if with_success { FLAG_SUCCESS } else { 0 };
            self.send_data(
                cid,
                offset,
                piece,
                if last { FLAG_LAST | success } else { 0 },
            )?;
            offset += u32::try_from(piece.len()).expect("small");
        }
        if with_success {
            Ok(())
        } else {
            self.respond(cid, Status::SUCCESS, 0)
        }
    }

    pub fn request_data(&mut self, cid: u16, tag: u16, offset: u32, bytes: u32) -> io::Result<()> {
        let header = R2tHeader::new(self.digests, cid, tag, offset, bytes);
        self.send_header(header.as_bytes())
    }

    pub fn terminate(&mut self, status: u16) -> io::Result<()> {
        let header = TerminateRequest::new(PduType::CONTROLLER_TERMINATE, status, 10, 0);
        self.send(header.as_bytes())
    }

    /// Reads the rest of a header of `N` bytes, checks its digest, and skips to the data.
    fn header<const N: usize>(&mut self, common: CommonHeader) -> io::Result<[u8; N]> {
        let mut header = [0; N];
        header[..8].copy_from_slice(common.as_bytes());
        self.stream.read_exact(&mut header[8..])?;
        if usize::from(common.header_bytes) != N {
            self.shared.fault(format!(
                "{:?} with HLEN {}",
                common.pdu_type, common.header_bytes
            ));
        }
        if self.digests.header {
            let mut digest = [0; 4];
            self.stream.read_exact(&mut digest)?;
            if crc32c(&header).to_le_bytes() != digest {
                self.shared
                    .fault("the host's header digest is wrong".to_owned());
            }
        }
        Ok(header)
    }

    /// Reads the data of a PDU whose header has been read.
    fn data(&mut self, common: CommonHeader) -> io::Result<Vec<u8>> {
        if common.data_offset == 0 {
            return Ok(Vec::new());
        }
        let digest_bytes = if self.digests.data { 4 } else { 0 };
        let end = u32::from(common.data_offset) + digest_bytes;
        let bytes = common.total_bytes.get().saturating_sub(end) as usize;
        let mut data = vec![0; bytes];
        self.stream.read_exact(&mut data)?;
        if self.digests.data {
            let mut digest = [0; 4];
            self.stream.read_exact(&mut digest)?;
            if crc32c(&data).to_le_bytes() != digest {
                self.shared
                    .fault("the host's data digest is wrong".to_owned());
            }
        }
        Ok(data)
    }

    fn goodbye(&mut self, common: CommonHeader) -> io::Result<()> {
        let mut header = [0; 24];
        header[..8].copy_from_slice(common.as_bytes());
        self.stream.read_exact(&mut header[8..])?;
        let header = TerminateRequest::read_from_bytes(&header).expect("24 bytes");
        self.shared
            .goodbyes
            .lock()
            .expect("no panic")
            .push(header.status.get());
        Ok(())
    }

    fn capsule(&mut self, common: CommonHeader) -> io::Result<()> {
        let header: [u8; 72] = self.header(common)?;
        let header = CommandHeader::read_from_bytes(&header).expect("72 bytes");
        let data = self.data(common)?;
        let entry = SubmissionEntry::from_array(header.entry);
        let command = Command {
            entry,
            cid: entry.command_id.get(),
            data,
            number: self.commands,
        };
        self.commands += 1;
        if !self.outstanding.insert(command.cid) {
            self.shared
                .fault(format!("command id {} is in progress already", command.cid));
        }
        if self.outstanding.len() >= self.entries {
            self.shared
                .fault(format!("{} commands in a queue", self.outstanding.len()));
        }
        if self.qid.is_some_and(|qid| qid > 0) {
            self.shared
                .deepest
                .fetch_max(self.outstanding.len(), Ordering::Relaxed);
        }
        let shared = Arc::clone(&self.shared);
        match (shared.script.command)(self, &command)? {
            Then::Done => Ok(()),
            Then::Usual => self.usual(command),
        }
    }

    /// What an honest target does with a command.
    pub fn usual(&mut self, command: Command) -> io::Result<()> {
        if command.entry.is_fabrics() {
            return self.fabrics(&command);
        }
        if self.qid == Some(0) {
            self.admin(&command)
        } else {
            self.io(command)
        }
    }

    fn fabrics(&mut self, command: &Command) -> io::Result<()> {
        let cid = command.cid;
        match command.entry.fabrics_type() {
            FabricsType::CONNECT => self.connect(command),
            FabricsType::PROPERTY_GET => {
                let get = PropertyCommand::read_from_bytes(command.entry.as_bytes()).expect("64");
                let value = match Property(get.offset.get()) {
                    Property::CAP => self.shared.script.capabilities,
                    Property::VS => 0x0002_0000,
                    Property::CSTS => u64::from(self.ready),
                    _ => 0,
                };
                self.respond(cid, Status::SUCCESS, value)
            }
            FabricsType::PROPERTY_SET => {
                self.ready = true;
                self.respond(cid, Status::SUCCESS, 0)
            }
            _ => self.respond(cid, Status::INVALID_OPCODE, 0),
        }
    }

    fn connect(&mut self, command: &Command) -> io::Result<()> {
        let connect = ConnectCommand::read_from_bytes(command.entry.as_bytes()).expect("64 bytes");
        let Ok(data) = ConnectData::read_from_bytes(&command.data) else {
            self.shared.fault("Connect without its data".to_owned());
            return Err(self.cut());
        };
        let qid = connect.queue_id.get();
        self.entries = usize::from(connect.queue_size.get()) + 1;
        self.controller = match qid {
            0 => self.shared.begin_association(),
            _ => data.controller_id.get(),
        };
        if qid > 0 && !self.shared.join_association(self.controller) {
            self.controller = 0;
            return self.respond(command.cid, Status::CONNECT_INVALID_PARAMETERS, 0x0001_0010);
        }
        self.qid = Some(qid);
        self.respond(command.cid, Status::SUCCESS, self.controller.into())
    }

    fn admin(&mut self, command: &Command) -> io::Result<()> {
        let (cid, entry) = (command.cid, command.entry);
        match entry.admin_opcode() {
            AdminOpcode::IDENTIFY => {
                let cns = u8::try_from(entry.cdw10.get() & 0xFF).expect("a byte");
                let page = self.page(cns, entry.nsid.get());
                self.send_all(cid, &page)
            }
            AdminOpcode::SET_FEATURES => {
                let granted = u64::from(self.shared.script.granted_queues - 1);
                self.respond(cid, Status::SUCCESS, granted << 16 | granted)
            }
            AdminOpcode::GET_LOG_PAGE => {
                let high = entry.cdw11.get() & 0xFFFF;
                let dwords = (entry.cdw10.get() >> 16 | high << 16) as usize + 1;
                let offset = u64::from(entry.cdw12.get()) | u64::from(entry.cdw13.get()) << 32;
                let mut page = vec![0; dwords * 4];
                (self.shared.script.log)(offset, &mut page);
                self.send_all(cid, &page)
            }
            AdminOpcode::KEEP_ALIVE => {
                self.shared.keep_alives.fetch_add(1, Ordering::Relaxed);
                self.respond(cid, Status::SUCCESS, 0)
            }
            _ => self.respond(cid, Status::INVALID_OPCODE, 0),
        }
    }

    fn page(&self, cns: u8, nsid: u32) -> Vec<u8> {
        let discovery = self.shared.script.discovery;
        let mut page = match cns {
            1 => pages::controller(self.controller, discovery)
                .as_bytes()
                .to_vec(),
            0 => pages::namespace().as_bytes().to_vec(),
            _ => vec![0; 4096],
        };
        match cns {
            2 => pages::active_list(&mut page, nsid),
            3 => pages::put_descriptors(&mut page, [0x5A; 16]),
            _ => {}
        }
        (self.shared.script.page)(cns, &mut page);
        page
    }

    fn io(&mut self, command: Command) -> io::Result<()> {
        let (cid, entry) = (command.cid, command.entry);
        self.shared.count(entry.io_opcode());
        match entry.io_opcode() {
            Opcode::READ => {
                let data = self.shared.read(range(&entry));
                self.send_all(cid, &data)
            }
            Opcode::FLUSH => self.respond(cid, Status::SUCCESS, 0),
            Opcode::WRITE_ZEROES => {
                self.shared.zero(range(&entry));
                self.respond(cid, Status::SUCCESS, 0)
            }
            Opcode::WRITE | Opcode::COMPARE | Opcode::DATASET_MANAGEMENT => {
                let bytes = entry.sgl.length.get() as usize;
                if command.data.len() == bytes {
                    let data = command.data.clone();
                    return self.execute(command, &data);
                }
                let tag = self.next_tag;
                self.next_tag = self.next_tag.wrapping_add(1);
                let first = bytes.min(PIECE);
                let write = Incoming {
                    command,
                    bytes,
                    data: Vec::with_capacity(bytes),
                };
                self.incoming.insert(tag, write);
                self.request_data(cid, tag, 0, u32::try_from(first).expect("small"))
            }
            _ => self.respond(cid, Status::INVALID_OPCODE, 0),
        }
    }

    fn host_data(&mut self, common: CommonHeader) -> io::Result<()> {
        let header: [u8; 24] = self.header(common)?;
        let header = DataHeader::read_from_bytes(&header).expect("24 bytes");
        let data = self.data(common)?;
        let tag = header.transfer_tag.get();
        let Some(mut write) = self.incoming.remove(&tag) else {
            if !self.shared.script.ignores_stray_data {
                self.shared
                    .fault(format!("H2CData with the tag {tag}, which no R2T had"));
            }
            return Ok(());
        };
        if header.offset_bytes.get() as usize != write.data.len() || data.is_empty() {
            self.shared.fault(format!(
                "H2CData at {} of {}",
                header.offset_bytes,
                write.data.len()
            ));
        }
        write.data.extend_from_slice(&data);
        let asked = write.data.len().next_multiple_of(PIECE).min(write.bytes);
        let is_last = common.flags & FLAG_LAST != 0;
        if is_last != (write.data.len() == asked) {
            self.shared
                .fault("LAST of H2CData is not where the R2T ends".to_owned());
        }
        let (cid, so_far, left) = (
            write.command.cid,
            write.data.len(),
            write.bytes - write.data.len(),
        );
        if left == 0 {
            return self.execute(write.command, &write.data);
        }
        self.incoming.insert(tag, write);
        if is_last {
            let bytes = u32::try_from(left.min(PIECE)).expect("small");
            return self.request_data(cid, tag, u32::try_from(so_far).expect("small"), bytes);
        }
        Ok(())
    }

    /// Carries out a command whose data is all here.
    fn execute(&mut self, command: Command, data: &[u8]) -> io::Result<()> {
        let (cid, entry) = (command.cid, command.entry);
        match (entry.io_opcode(), entry.fuse_bits()) {
            (Opcode::COMPARE, 1) => {
                self.compare = Some((command, data.to_vec()));
                Ok(())
            }
            (Opcode::WRITE, 2) => {
                let Some((compare, expected)) = self.compare.take() else {
                    self.shared
                        .fault("a fused write without its compare".to_owned());
                    return self.respond(cid, Status::ABORTED_MISSING_FUSED, 0);
                };
                let matches = self
                    .shared
                    .compare_and_write(range(&entry), &expected, data);
                let (first, second) = match matches {
                    true => (Status::SUCCESS, Status::SUCCESS),
                    false => (Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED),
                };
                if self.shared.script.answers_pairs_backwards {
                    self.respond(cid, second, 0)?;
                    return self.respond(compare.cid, first, 0);
                }
                self.respond(compare.cid, first, 0)?;
                self.respond(cid, second, 0)
            }
            (Opcode::WRITE, _) => {
                self.shared.write(range(&entry), data);
                self.respond(cid, Status::SUCCESS, 0)
            }
            (Opcode::DATASET_MANAGEMENT, _) => {
                let (range, _) = DatasetRange::read_from_prefix(data).expect("one range");
                self.shared
                    .zero((range.lba.get(), u64::from(range.blocks.get())));
                self.respond(cid, Status::SUCCESS, 0)
            }
            _ => self.respond(cid, Status::INVALID_OPCODE, 0),
        }
    }
}

/// The blocks that a command names.
pub fn range(entry: &SubmissionEntry) -> (u64, u64) {
    let lba = u64::from(entry.cdw10.get()) | u64::from(entry.cdw11.get()) << 32;
    (lba, u64::from(entry.cdw12.get() & 0xFFFF) + 1)
}

/// Data travels in pieces of so many bytes, both ways.
const PIECE: usize = 24 << 10;
