//! The rate that plain sockets reach on this machine in the place of an iSCSI target.
//!
//! `iscsi_limit ram|null [PAUSE_US]` prints the address of its disk and serves initiators one after
//! the other until the program is ended. Every login succeeds. The program answers the commands
//! with which `iscsi-perf` begins by the least that it needs. It answers READ(16) with one Data-In
//! that carries the status. The data comes from 1 GiB of written memory (`ram`) or from memory that
//! was never written (`null`), without a copy. One send answers all commands of one receive. The
//! program never sleeps while it has an initiator, but waits PAUSE_US (20) before it reads the
//! socket again: more commands arrive meanwhile, and the sender is not disturbed. It checks
//! nothing, supports no other command, and drops written data.
//!
//! Hardly any target can be faster for this initiator. Only the ratio of a real target to this
//! program, run in turns, is meaningful.

use std::env;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fabrix_proto::iscsi::pdu::{
    BHS_BYTES, BasicHeader, CONTINUE, DATA_IN_STATUS, DataIn, FINAL, LoginRequest, LoginResponse,
    NO_TAG, NopIn, Opcode, PADDING_UNIT, ScsiCommand, Sequence, U24, padding,
};
use fabrix_proto::scsi::spec;
use fabrix_rt::{Gather, HugePages, LocalRegion, Region, Socket, net};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromZeros, Immutable, IntoBytes};

const NAME: &str = "iqn.2026-01.io.fabrix:limit";
/// Best pause for `iscsi-perf` among those tried.
const PAUSE_US: u64 = 20;
const DISK_BYTES: u64 = 1 << 30;
const BLOCK_BYTES: u32 = 512;
/// Memory of the null disk: as much as Fabrix's null disk lends, so that it stays in the cache like
/// that one.
const NULL_BYTES: usize = 1 << 20;
/// Longest READ(16).
const READ_BYTES_MAX: usize = NULL_BYTES;
const BUFFER_BYTES: usize = 256 << 10;
const GATHER_BYTES: usize = 64 << 10;
const GATHER_PARTS: usize = 1024;
/// Most commands of an initiator in flight.
const COMMANDS_MAX: u32 = 256;
/// CSG: bits of the second byte of a Login Request that name its stage. 0 is the security
/// negotiation.
const STAGE: u8 = 0x0C;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let Some((is_ram, pause)) = parse(&words) else {
        eprintln!(
            "usage: iscsi_limit ram|null [PAUSE_US]\nwhere `null` is memory that was never written"
        );
        return ExitCode::from(2);
    };
    match memory(is_ram).and_then(|memory| serve_all(&memory, pause)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iscsi_limit: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the memory is written, and the pause between two reads of the socket.
fn parse(words: &[String]) -> Option<(bool, Duration)> {
    let (disk, pause_us) = match words {
        [disk] => (disk, PAUSE_US),
        [disk, pause_us] => (disk, pause_us.parse().ok()?),
        _ => return None,
    };
    let is_known = ["ram", "null"].contains(&disk.as_str());
    is_known.then_some((disk == "ram", Duration::from_micros(pause_us)))
}

/// Memory for the answers to reads. The memory of a RAM disk is written once from end to end.
fn memory(is_ram: bool) -> io::Result<LocalRegion> {
    if !is_ram {
        return Region::new(NULL_BYTES, HugePages::No).map(|region| Region::local(&region));
    }
    let bytes = usize::try_from(DISK_BYTES).expect("1 GiB");
    let region = Region::new(bytes, HugePages::Try)?;
    let ones = vec![1; 1 << 20];
    for offset in (0..bytes).step_by(ones.len()) {
        region.write(offset, &ones);
    }
    Ok(Region::local(&region))
}

/// Serves initiators for ever.
fn serve_all(memory: &LocalRegion, pause: Duration) -> io::Result<()> {
    let listener = listen()?;
    println!("iscsi://{}/{NAME}/0", listener.local_addr()?);
    loop {
        let limit = Limit::new(listener.accept()?.0, memory.clone());
        match limit.and_then(|limit| limit.serve(pause)) {
            Err(error) if !is_the_others_end(&error) => return Err(error),
            _ => {}
        }
    }
}

/// Listens like Fabrix's target: small segments leave at once, and loopback is not paced.
fn listen() -> io::Result<TcpListener> {
    let listener = net::listen((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(listener.as_fd().try_clone_to_owned()?.into())
}

fn is_the_others_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// One connection.
struct Limit {
    socket: Socket,
    memory: LocalRegion,
    received: Vec<u8>,
    gather: Gather,
    stat_sn: u32,
    /// CmdSN of the initiator's next command.
    cmd_sn: u32,
}

impl Limit {
    fn new(stream: TcpStream, memory: LocalRegion) -> io::Result<Self> {
        let socket = Socket::from(stream);
        socket.stream().set_nonblocking(true)?;
        Ok(Self {
            socket,
            memory,
            received: vec![0; BUFFER_BYTES],
            gather: Gather::new(GATHER_BYTES, GATHER_PARTS),
            stat_sn: 0,
            cmd_sn: 0,
        })
    }

    /// Answers commands until the initiator closes the connection.
    fn serve(mut self, pause: Duration) -> io::Result<()> {
        let mut have = 0;
        loop {
            let looked_away = Instant::now();
            while looked_away.elapsed() < pause {
                std::hint::spin_loop();
            }
            match self.socket.stream().read(&mut self.received[have..]) {
                Ok(0) => return Ok(()),
                Ok(bytes) => have += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            let mut start = 0;
            while let Some((header, bytes)) = first_pdu(&self.received[start..have]) {
                self.answer(header)?;
                start += bytes;
            }
            self.send()?;
            self.received.copy_within(start..have, 0);
            have -= start;
        }
    }

    fn answer(&mut self, header: [u8; BHS_BYTES]) -> io::Result<()> {
        let basic: BasicHeader = zerocopy::transmute!(header);
        let numbered = !basic.is_immediate();
        self.cmd_sn = basic.cmd_sn.get().wrapping_add(numbered.into());
        match basic.kind() {
            Opcode::LOGIN_REQUEST => self.log_in(&zerocopy::transmute!(header)),
            Opcode::SCSI_COMMAND => self.execute(&zerocopy::transmute!(header)),
            Opcode::NOP_OUT if basic.itt.get() != NO_TAG => {
                self.say(Opcode::NOP_IN, basic.itt, NO_TAG)
            }
            Opcode::LOGOUT_REQUEST => self.say(Opcode::LOGOUT_RESPONSE, basic.itt, 0),
            _ => Ok(()),
        }
    }

    /// Accepts every step of the login.
    fn log_in(&mut self, request: &LoginRequest) -> io::Result<()> {
        let keys: &[u8] = match request.flags & STAGE {
            0 => b"AuthMethod=None\0",
            _ => b"HeaderDigest=None\0DataDigest=None\0",
        };
        let mut answer = LoginResponse::new_zeroed();
        answer.opcode = Opcode::LOGIN_RESPONSE.0;
        answer.flags = request.flags & !CONTINUE;
        (answer.isid, answer.tsih) = (request.isid, 1.into());
        (answer.itt, answer.data_bytes) = (request.itt, length(keys.len()));
        answer.sequence = self.next_status();
        self.push(&answer, keys)
    }

    fn execute(&mut self, command: &ScsiCommand) -> io::Result<()> {
        match spec::Opcode(command.cdb[0]) {
            spec::Opcode::READ_16 => self.read(command),
            spec::Opcode::SERVICE_ACTION_IN_16 => {
                let mut capacity = [0; 32]; // READ CAPACITY(16): last block, block length
                let last = DISK_BYTES / u64::from(BLOCK_BYTES) - 1;
                capacity[..8].copy_from_slice(&last.to_be_bytes());
                capacity[8..12].copy_from_slice(&BLOCK_BYTES.to_be_bytes());
                let header = self.data_in(command, capacity.len());
                self.push(&header, &capacity)
            }
            _ => self.say(Opcode::SCSI_RESPONSE, command.itt, 0),
        }
    }

    /// Sends a NOP-In, or a success response, whose header has the same layout.
    fn say(&mut self, opcode: Opcode, itt: U32, ttt: u32) -> io::Result<()> {
        let mut answer = NopIn::new_zeroed();
        (answer.opcode, answer.flags) = (opcode.0, FINAL);
        (answer.itt, answer.ttt) = (itt, ttt.into());
        answer.sequence = self.next_status();
        self.push(&answer, &[])
    }

    fn read(&mut self, command: &ScsiCommand) -> io::Result<()> {
        let memory_bytes = self.memory.region().len();
        let bytes = (command.expected_bytes.get() as usize).min(READ_BYTES_MAX);
        let lba = u64::from_be_bytes(command.cdb[2..10].try_into().expect("8 bytes"));
        let place = lba.wrapping_mul(BLOCK_BYTES.into()) % (memory_bytes - bytes + 1) as u64;
        let place = usize::try_from(place).expect("inside the memory");
        let header = self.data_in(command, bytes);
        self.push(&header, &[])?;
        self.gather.push_lent(self.memory.lend(place, bytes));
        Ok(())
    }

    /// The header of the only Data-In of a command.
    fn data_in(&mut self, command: &ScsiCommand, bytes: usize) -> DataIn {
        let mut header = DataIn::new_zeroed();
        (header.opcode, header.flags) = (Opcode::DATA_IN.0, FINAL | DATA_IN_STATUS);
        (header.itt, header.ttt) = (command.itt, NO_TAG.into());
        header.data_bytes = length(bytes);
        header.sequence = self.next_status();
        header
    }

    fn next_status(&mut self) -> Sequence {
        self.stat_sn = self.stat_sn.wrapping_add(1);
        Sequence {
            stat_sn: self.stat_sn.into(),
            exp_cmd_sn: self.cmd_sn.into(),
            max_cmd_sn: self.cmd_sn.wrapping_add(COMMANDS_MAX - 1).into(),
        }
    }

    /// Copies a header and its data, padded. Leaves room for lent data after the header.
    fn push(&mut self, header: &(impl IntoBytes + Immutable), data: &[u8]) -> io::Result<()> {
        let padding = &[0; PADDING_UNIT][..padding(data.len())];
        let bytes = BHS_BYTES + data.len() + padding.len();
        if !self.gather.has_room(bytes, 2) {
            self.send()?;
        }
        for part in [header.as_bytes(), data, padding] {
            self.gather.push_bytes(part);
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.gather.is_empty() {
            net::send_now(&self.socket, &mut self.gather)?;
            self.gather.clear();
        }
        Ok(())
    }
}

/// Header and length of the first PDU. `None` if the PDU is incomplete.
fn first_pdu(bytes: &[u8]) -> Option<([u8; BHS_BYTES], usize)> {
    let header = *bytes.first_chunk()?;
    let basic: BasicHeader = zerocopy::transmute!(header);
    let data_bytes = basic.segment_bytes();
    let whole = BHS_BYTES + basic.ahs_bytes() + data_bytes + padding(data_bytes);
    (bytes.len() >= whole).then_some((header, whole))
}

/// Length of a data segment in the format of headers.
fn length(bytes: usize) -> U24 {
    U24::new(u32::try_from(bytes).expect("our data are short"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    /// Memory whose every block begins with its own address.
    fn numbered(blocks: u32) -> LocalRegion {
        let block_bytes = BLOCK_BYTES as usize;
        let region = Region::new(READ_BYTES_MAX, HugePages::No).expect("a megabyte");
        for block in 0..blocks {
            region.write(block as usize * block_bytes, &block.to_be_bytes());
        }
        Region::local(&region)
    }

    /// An initiator, and the thread that serves it.
    fn dial() -> (TcpStream, thread::JoinHandle<io::Result<()>>) {
        let listener = listen().expect("a port");
        let address = listener.local_addr().expect("an address");
        let limit = thread::spawn(move || {
            Limit::new(listener.accept()?.0, numbered(100))?.serve(Duration::ZERO)
        });
        let socket = TcpStream::connect(address).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        socket.set_read_timeout(patience).expect("a timeout");
        (socket, limit)
    }

    /// A request by the RFC's table, that expects 16 bytes of data.
    fn request(opcode: u8, flags: u8, itt: u8, cmd_sn: u8, cdb: &[u8]) -> [u8; BHS_BYTES] {
        let mut bhs = [0; BHS_BYTES];
        (bhs[0], bhs[1], bhs[19], bhs[23], bhs[27]) = (opcode, flags, itt, 16, cmd_sn);
        bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        bhs
    }

    /// Opcode, flags, ITT, ExpCmdSN and data of the next answer.
    fn answer(socket: &mut TcpStream) -> (u8, u8, u8, u8, Vec<u8>) {
        let mut bhs = [0; BHS_BYTES];
        socket.read_exact(&mut bhs).expect("a header");
        let mut data = vec![0; usize::from(bhs[7]).next_multiple_of(4)];
        socket.read_exact(&mut data).expect("its data");
        data.truncate(bhs[7].into());
        (bhs[0], bhs[1], bhs[19], bhs[31], data)
    }

    #[test]
    fn only_the_two_disks_and_a_pause_are_known() {
        let parse = |line: &str| parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("ram"), Some((true, Duration::from_micros(20))));
        assert_eq!(parse("null 0"), Some((false, Duration::ZERO)));
        for wrong in ["", "file", "ram soon", "ram 1 2"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_initiator_logs_in_and_reads_what_lies_at_each_place() {
        let (mut socket, limit) = dial();
        for (flags, keys) in [
            (0x81, &b"AuthMethod=None\0"[..]),
            (0x87, b"HeaderDigest=None\0DataDigest=None\0"),
        ] {
            socket
                .write_all(&request(0x43, flags, 1, 5, &[]))
                .expect("sent");
            let agreed = (0x23, flags, 1, 5, keys.to_vec());
            assert_eq!(answer(&mut socket), agreed);
        }
        let read = |lba: u8| [0x88, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, 1, 0, 0];
        let mut asked = request(0x01, 0xC0, 2, 5, &[0]).to_vec(); // TEST UNIT READY
        asked.extend(request(0x01, 0xC0, 3, 6, &read(7)));
        asked.extend(request(0x01, 0xC0, 4, 7, &read(99)));
        asked.extend(request(0x46, 0x80, 5, 8, &[]));
        let (first, rest) = asked.split_at(100); // in the middle of the second
        socket.write_all(first).expect("sent");
        assert_eq!(answer(&mut socket), (0x21, 0x80, 2, 6, Vec::new()));
        socket.write_all(rest).expect("sent");
        for (itt, lba) in [(3, 7), (4, 99)] {
            let mut data = vec![0; 16];
            data[3] = lba;
            assert_eq!(answer(&mut socket), (0x25, 0x81, itt, itt + 4, data));
        }
        assert_eq!(answer(&mut socket), (0x26, 0x80, 5, 8, Vec::new()));
        drop(socket);
        let ended = limit.join().expect("it does not panic");
        assert!(ended.is_ok() || ended.is_err_and(|error| is_the_others_end(&error)));
    }
}
