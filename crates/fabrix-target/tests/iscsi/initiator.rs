//! An initiator on a plain socket, written from the RFC's tables and not from Fabrix's code.
//!
//! Source: RFC 7143, section 11.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use fabrix_sim::{Place, Stream};

use crate::common::wire::crc32c;
use crate::common::{IQN, PATIENCE};

pub(crate) const READ: u8 = 0x40;
pub(crate) const WRITE: u8 = 0x20;
pub(crate) const FINAL: u8 = 0x80;
const NO_TAG: u32 = u32::MAX;

/// A session.
pub(crate) struct Initiator {
    pub(crate) socket: Stream,
    digests: bool,
    cmd_sn: u32,
    itt: u32,
    /// Logical unit of the next commands.
    pub(crate) lun: u8,
}

/// One received PDU.
#[derive(Debug)]
pub(crate) struct Pdu {
    pub(crate) bhs: [u8; 48],
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    pub(crate) fn opcode(&self) -> u8 {
        self.bhs[0] & 0x3F
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bhs[at..at + 4].try_into().expect("four"))
    }
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    /// Sense key, ASC and ASCQ.
    pub(crate) sense: Option<[u8; 3]>,
    /// Residual. Negative if less was moved than expected.
    pub(crate) residual: i64,
}

impl Initiator {
    pub(crate) fn dial(address: SocketAddr) -> Self {
        let mut socket = Place::current()
            .connect(address)
            .expect("the target listens");
        socket.set_patience(PATIENCE);
        Self {
            socket,
            digests: false,
            cmd_sn: 1,
            itt: 0,
            lun: 0,
        }
    }

    /// A normal session, logged in with one request. `last` distinguishes initiators. Unsolicited
    /// data is allowed.
    pub(crate) fn log_in(address: SocketAddr, last: u8, digests: bool) -> Self {
        let mut initiator = Self::dial(address);
        let name = format!("InitiatorName=iqn.2026-01.example:initiator{last}");
        let target = format!("TargetName={IQN}");
        let digest = if digests { "CRC32C" } else { "None" };
        let (header, data) = (
            format!("HeaderDigest={digest}"),
            format!("DataDigest={digest}"),
        );
        let keys = [
            name.as_str(),
            &target,
            &header,
            &data,
            "InitialR2T=No",
            "ImmediateData=Yes",
            "FirstBurstLength=8192",
            "MaxBurstLength=65536",
            "MaxRecvDataSegmentLength=16384",
        ];
        let answer = initiator.try_login(&keys);
        assert_eq!(answer.bhs[36..38], [0, 0], "the login: {answer:?}");
        initiator.digests = digests;
        initiator
    }

    /// One login request from the operational to the full-feature phase, and its answer.
    pub(crate) fn try_login(&mut self, keys: &[&str]) -> Pdu {
        self.login_step(0x87, keys)
    }

    /// Sends one login request, and returns its answer. `flags` name the stages.
    pub(crate) fn login_step(&mut self, flags: u8, keys: &[&str]) -> Pdu {
        self.login_text(flags, &text(keys));
        self.receive()
    }

    /// Sends one login request without waiting for its answer.
    pub(crate) fn login_text(&mut self, flags: u8, text: &[u8]) {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1]) = (0x43, flags);
        bhs[8..14].copy_from_slice(&[0x80, 0, 0, 1, 0, 0]);
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.send(bhs, text);
    }

    /// Requests all targets (SendTargets) in a discovery session.
    pub(crate) fn send_targets(&mut self) -> String {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[19]) = (0x04, FINAL, 7);
        bhs[20..24].fill(0xFF);
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.cmd_sn += 1;
        self.send(bhs, b"SendTargets=All\0");
        String::from_utf8(self.receive().data).expect("text")
    }

    /// Logs out and closes the session.
    pub(crate) fn log_out(&mut self) {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[16]) = (0x46, FINAL, 8);
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.send(bhs, &[]);
    }

    /// The CmdSN of the next command.
    pub(crate) fn cmd_sn(&mut self) -> &mut u32 {
        &mut self.cmd_sn
    }

    pub(crate) fn send(&mut self, bhs: [u8; 48], data: &[u8]) {
        let bytes = self.bytes(bhs, data);
        self.socket.write_all(&bytes).expect("the target reads");
    }

    /// Sends bytes to a target that may have closed the connection already.
    pub(crate) fn try_send(&mut self, bhs: [u8; 48], data: &[u8]) {
        let bytes = self.bytes(bhs, data);
        let _it_has_closed = self.socket.write_all(&bytes);
    }

    /// The bytes of a PDU.
    pub(crate) fn bytes(&self, mut bhs: [u8; 48], data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).expect("short").to_be_bytes();
        bhs[5..8].copy_from_slice(&length[1..]);
        let mut bytes = bhs.to_vec();
        if self.digests {
            bytes.extend(crc32c(&bhs).to_le_bytes());
        }
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        if self.digests && !data.is_empty() {
            let digest = crc32c(&padded);
            padded.extend(digest.to_le_bytes());
        }
        bytes.extend(padded);
        bytes
    }

    pub(crate) fn receive(&mut self) -> Pdu {
        let mut bhs = [0; 48];
        self.socket.read_exact(&mut bhs).expect("a header");
        if self.digests {
            assert_eq!(self.take(4), crc32c(&bhs).to_le_bytes(), "header digest");
        }
        let length = usize::from(bhs[5]) << 16 | usize::from(bhs[6]) << 8 | usize::from(bhs[7]);
        let mut data = self.take(length.next_multiple_of(4));
        if self.digests && length > 0 {
            assert_eq!(self.take(4), crc32c(&data).to_le_bytes(), "data digest");
        }
        assert!(data[length..].iter().all(|byte| *byte == 0), "padding");
        data.truncate(length);
        Pdu { bhs, data }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.socket.read_exact(&mut taken).expect("more bytes");
        taken
    }

    /// Expects that the target closes without another PDU. A target that stays silent and open
    /// fails the test.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.socket.read(&mut [0; 1]) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Sends a command. `flags` are its direction, and whether unsolicited data follows.
    pub(crate) fn begin(
        &mut self,
        flags: u8,
        cdb: &[u8],
        expected: usize,
        immediate: &[u8],
    ) -> u32 {
        self.itt += 1;
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[9]) = (0x01, flags, self.lun);
        bhs[16..20].copy_from_slice(&self.itt.to_be_bytes());
        let expected = u32::try_from(expected).expect("short");
        bhs[20..24].copy_from_slice(&expected.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(bhs, immediate);
        self.itt
    }

    /// A command that moves no data, or reads.
    pub(crate) fn command(&mut self, cdb: &[u8], expected: usize) -> Ended {
        let flags = if expected > 0 { FINAL | READ } else { FINAL };
        self.begin(flags, cdb, expected, &[]);
        self.end(&[])
    }

    /// Runs a command with immediate data, unsolicited data, and the rest as the target requests
    /// it.
    pub(crate) fn write(
        &mut self,
        cdb: &[u8],
        data: &[u8],
        immediate: usize,
        unsolicited: usize,
    ) -> Ended {
        let flags = if unsolicited > 0 {
            WRITE
        } else {
            WRITE | FINAL
        };
        let itt = self.begin(flags, cdb, data.len(), &data[..immediate]);
        if unsolicited > 0 {
            let end = immediate + unsolicited;
            self.data_out(itt, NO_TAG, data, (immediate, end));
        }
        self.end(data)
    }

    /// Data-Out from one offset to another, in PDUs of odd lengths.
    pub(crate) fn data_out(&mut self, itt: u32, ttt: u32, data: &[u8], (from, to): (usize, usize)) {
        let (mut at, mut sn) = (from, 0u32);
        while at < to {
            let end = (at + 4099).min(to);
            let mut bhs = [0; 48];
            (bhs[0], bhs[1]) = (0x05, if end == to { FINAL } else { 0 });
            bhs[16..20].copy_from_slice(&itt.to_be_bytes());
            bhs[20..24].copy_from_slice(&ttt.to_be_bytes());
            bhs[36..40].copy_from_slice(&sn.to_be_bytes());
            let offset = u32::try_from(at).expect("short");
            bhs[40..44].copy_from_slice(&offset.to_be_bytes());
            self.send(bhs, &data[at..end]);
            (at, sn) = (end, sn + 1);
        }
    }

    /// Serves R2Ts and receives PDUs until the command has ended.
    pub(crate) fn end(&mut self, data: &[u8]) -> Ended {
        let mut taken = Vec::new();
        loop {
            let pdu = self.receive();
            let at = usize::try_from(pdu.u32(40)).expect("short");
            match pdu.opcode() {
                0x31 => {
                    let end = at + usize::try_from(pdu.u32(44)).expect("short");
                    self.data_out(pdu.u32(16), pdu.u32(20), data, (at, end));
                }
                0x25 => {
                    assert_eq!(at, taken.len(), "data in order");
                    taken.extend(&pdu.data);
                    if pdu.bhs[1] & 1 == 1 {
                        return ended(&pdu, taken);
                    }
                }
                0x21 => return ended(&pdu, taken),
                other => panic!("PDU {other:#x}: {:?}", pdu.bhs),
            }
        }
    }
}

/// Keys and values in the format of a login.
pub(crate) fn text(keys: &[&str]) -> Vec<u8> {
    let ended = |key: &&str| [key.as_bytes(), &[0]].concat();
    keys.iter().flat_map(ended).collect()
}

fn ended(pdu: &Pdu, data: Vec<u8>) -> Ended {
    let residual = i64::from(pdu.u32(44));
    let sense = (pdu.opcode() == 0x21 && pdu.data.len() > 15)
        .then(|| [pdu.data[4] & 0xF, pdu.data[14], pdu.data[15]]);
    Ended {
        status: pdu.bhs[3],
        data,
        sense,
        residual: match pdu.bhs[1] & 6 {
            4 => residual,
            2 => -residual,
            _ => 0,
        },
    }
}
