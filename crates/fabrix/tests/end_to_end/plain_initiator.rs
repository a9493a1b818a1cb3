//! An iSCSI initiator of a few lines: one session, one command at a time, and an ISID of zeroes, so
//! that each session under a name is the same initiator port.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No answer takes so long, not even on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// An initiator with a session: one command at a time, its data with it.
pub(crate) struct Initiator {
    socket: TcpStream,
    cmd_sn: u8,
}

impl Initiator {
    /// Logs in to a target under a name.
    pub(crate) fn new(portal: &str, target: &str, name: &str) -> Self {
        let socket = TcpStream::connect(portal).expect("it listens");
        socket.set_read_timeout(Some(BOUND)).expect("a timeout");
        let mut initiator = Self { socket, cmd_sn: 1 };
        let text = format!("InitiatorName=iqn.2026-01.example:{name}\0TargetName={target}\0");
        let mut login = [0; 48];
        (login[0], login[1], login[8], login[27]) = (0x43, 0x87, 0x80, 1);
        initiator.send(login, text.as_bytes());
        let (answer, _) = initiator.receive();
        assert_eq!((answer[0], &answer[36..38]), (0x23, &[0, 0][..]));
        // TEST UNIT READY takes the word that the session is new.
        initiator.command(&[0; 6], &[], 0);
        initiator
    }

    fn send(&mut self, mut bhs: [u8; 48], data: &[u8]) {
        let length = u16::try_from(data.len()).expect("short").to_be_bytes();
        bhs[6..8].copy_from_slice(&length);
        let mut bytes = bhs.to_vec();
        bytes.extend(data);
        bytes.resize(48 + data.len().next_multiple_of(4), 0);
        self.socket.write_all(&bytes).expect("it reads");
    }

    fn receive(&mut self) -> ([u8; 48], Vec<u8>) {
        let mut bhs = [0; 48];
        self.socket.read_exact(&mut bhs).expect("it answers");
        let length = usize::from(u16::from_be_bytes([bhs[6], bhs[7]]));
        let mut data = vec![0; length.next_multiple_of(4)];
        self.socket.read_exact(&mut data).expect("and goes on");
        data.truncate(length);
        (bhs, data)
    }

    /// The status, and what was read.
    pub(crate) fn command(&mut self, cdb: &[u8], write: &[u8], read: u8) -> (u8, Vec<u8>) {
        let mut bhs = [0; 48];
        let direction = if read > 0 { 0x40 } else { 0x20 };
        (bhs[0], bhs[1], bhs[19], bhs[27]) = (0x01, 0x80 | direction, self.cmd_sn, self.cmd_sn);
        let expected = write.len() + usize::from(read);
        bhs[22..24].copy_from_slice(&u16::try_from(expected).expect("short").to_be_bytes());
        bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(bhs, write);
        let (answer, data) = self.receive();
        assert!(matches!(answer[0], 0x21 | 0x25), "PDU {:#x}", answer[0]);
        (answer[3], data)
    }

    /// PERSISTENT RESERVE OUT of the type Write Exclusive. The status.
    pub(crate) fn reserve_out(&mut self, action: u8, key: u8, new: u8, flags: u8) -> u8 {
        let mut list = [0; 24];
        (list[7], list[15], list[20]) = (key, new, flags);
        let cdb = [0x5F, action, 1, 0, 0, 0, 0, 0, 24, 0];
        self.command(&cdb, &list, 0).0
    }

    /// The keys of all registrations.
    pub(crate) fn keys(&mut self) -> Vec<u8> {
        let (_, data) = self.command(&[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[], 64);
        data[8..].chunks(8).map(|key| key[7]).collect()
    }
}
