//! The kernel's NBD client: a socket as a block device of this machine, /dev/nbdN.
//!
//! This module speaks the driver's generic netlink. It does not know the NBD server at the other
//! end of the socket. Every call may wait for that server, so it belongs on a thread that does not
//! serve. Source: include/uapi/linux/nbd-netlink.h and genetlink.h of the Linux kernel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{claim, sys};

/// Settings of a new device.
#[derive(Clone, Copy, Debug)]
pub struct NbdOptions {
    /// Bytes of the disk.
    pub bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Transmission flags of NBD: what the server supports.
    pub flags: u16,
    /// Longest time of a request, in whole seconds; zero sets none. After it the driver gives up
    /// the socket and fails the request.
    pub timeout: Duration,
}

/// A connected device. Dropping this value leaves the device connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdDevice {
    path: PathBuf,
    index: u32,
}

impl NbdDevice {
    /// Asks whether the driver can be used.
    ///
    /// Errors: `NotFound` when the driver is not loaded.
    pub fn available() -> io::Result<()> {
        Netlink::open().map(drop)
    }

    /// Connects a free device to an NBD server over one socket.
    ///
    /// The driver would take several. But it receives from each in a work item that never ends, and
    /// a kernel that is slow to make a thread runs such items one after the other: the answers on
    /// the second socket are then never read (`docs/INTEROP.md`).
    ///
    /// Errors: `NotFound` without the driver, `PermissionDenied` without the right to use it, and
    /// what the driver says.
    pub fn connect(socket: &UnixStream, options: &NbdOptions) -> io::Result<Self> {
        let number = attribute(SOCKET_FD, &socket.as_raw_fd().to_ne_bytes());
        let body = [
            attribute(SIZE_BYTES, &options.bytes.to_ne_bytes()),
            attribute(BLOCK_BYTES, &u64::from(options.block_bytes).to_ne_bytes()),
            attribute(TIMEOUT_S, &options.timeout.as_secs().to_ne_bytes()),
            attribute(SERVER_FLAGS, &u64::from(options.flags).to_ne_bytes()),
            nested(SOCKETS, &nested(SOCKET_ITEM, &number)),
        ];
        let answer = Netlink::open()?.ask(CONNECT, &body.concat())?;
        let index = answer.ok_or_else(|| io::Error::other("the driver names no device"))?;
        let path = PathBuf::from(format!("/dev/nbd{index}"));
        Ok(Self { path, index })
    }

    /// The device at a path. Another process may have connected it. None: the path is not
    /// /dev/nbdN.
    pub fn at(path: &Path) -> Option<Self> {
        let index = path.to_str()?.strip_prefix("/dev/nbd")?.parse().ok()?;
        let path = path.to_owned();
        Some(Self { path, index })
    }

    /// Path of the device: /dev/nbdN.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id of the process that has connected the device. None: the device is not connected.
    pub fn owner(&self) -> Option<u32> {
        let name = format!("/sys/block/nbd{}/pid", self.index);
        std::fs::read_to_string(name).ok()?.trim().parse().ok()
    }

    /// Writes back the cached data and disconnects. The device must not be claimed by a mount, by
    /// swap or by another driver.
    ///
    /// Errors: `ResourceBusy` for a claimed device, and what failed while writing back.
    pub fn disconnect(&self) -> io::Result<()> {
        let _claimed = claim(&self.path)?;
        self.disconnect_by_force()
    }

    /// Disconnects at once. Requests in progress fail.
    ///
    /// Errors: what the driver says.
    pub fn disconnect_by_force(&self) -> io::Result<()> {
        let index = attribute(INDEX, &self.index.to_ne_bytes());
        Netlink::open()?.ask(DISCONNECT, &index).map(drop)
    }

    /// Sets the size of the device.
    ///
    /// Errors: what the driver says.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        let body = [
            attribute(INDEX, &self.index.to_ne_bytes()),
            attribute(SIZE_BYTES, &bytes.to_ne_bytes()),
        ];
        Netlink::open()?.ask(RECONFIGURE, &body.concat()).map(drop)
    }
}

/// A netlink socket to the driver.
struct Netlink {
    socket: File,
    family: u16,
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let mut netlink = Self {
            socket: sys::netlink::generic()?,
            family: GENERIC_CONTROL,
        };
        let name = attribute(FAMILY_NAME, b"nbd\0");
        netlink.send(GET_FAMILY, 1, &name)?;
        let id = netlink.receive(FAMILY_ID)?.ok_or(io::ErrorKind::NotFound)?;
        let id = id.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        netlink.family = u16::from_ne_bytes(*id);
        Ok(netlink)
    }

    /// Sends one command and waits for its acknowledgement. Returns the device index of the answer,
    /// if the answer has one.
    fn ask(&self, command: u8, body: &[u8]) -> io::Result<Option<u32>> {
        self.send(command, 1, body)?;
        let index = self.receive(INDEX)?;
        Ok(index.and_then(|index| Some(u32::from_ne_bytes(*index.first_chunk()?))))
    }

    fn send(&self, command: u8, version: u8, body: &[u8]) -> io::Result<()> {
        let bytes = HEAD_BYTES + GENERIC_BYTES + body.len();
        let length = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let message = [
            &length.to_ne_bytes()[..],
            &self.family.to_ne_bytes(),
            &(REQUEST | ACKNOWLEDGE).to_ne_bytes(),
            &[0; 8], // sequence and port: one command at a time
            &[command, version, 0, 0],
            body,
        ];
        (&self.socket).write_all(&message.concat())
    }

    /// Reads messages up to the acknowledgement, which carries the result. Returns the value of an
    /// attribute, if a message has it.
    fn receive(&self, wanted: u16) -> io::Result<Option<Vec<u8>>> {
        let mut found = None;
        let mut buffer = vec![0; ANSWER_BYTES];
        loop {
            let bytes = (&self.socket).read(&mut buffer)?;
            let mut rest = &buffer[..bytes];
            while let Some((kind, body, behind)) = split_message(rest) {
                if kind == ERROR {
                    let number = body.get(..4).and_then(|bytes| bytes.try_into().ok());
                    return match number.map_or(-libc::EPROTO, i32::from_ne_bytes) {
                        0 => Ok(found),
                        errno => Err(io::Error::from_raw_os_error(-errno)),
                    };
                }
                let attributes = body.get(GENERIC_BYTES..);
                let value = attributes.and_then(|attributes| find(attributes, wanted));
                found = value.map(<[u8]>::to_vec).or(found);
                rest = behind;
            }
        }
    }
}

/// The first message of several: its kind, its body, and the messages behind it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEAD_BYTES..length)?;
    let behind = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, behind))
}

/// One attribute: head, value, and padding to a multiple of four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE_BYTES + value.len()).expect("our attributes are short");
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, attributes)
}

/// The value of an attribute among others.
fn find(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        if kind & !NESTED == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

const HEAD_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
const ATTRIBUTE_BYTES: usize = 4;
const ANSWER_BYTES: usize = 8192;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;

const GENERIC_CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_BYTES: u16 = 3;
const TIMEOUT_S: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_nothing_in_what_is_cut_off() {
        let two = [attribute(7, b"abc"), attribute(INDEX, &5_u32.to_ne_bytes())].concat();
        assert_eq!(two.len(), 16);
        assert_eq!(find(&two, INDEX), Some(&5_u32.to_ne_bytes()[..]));
        assert_eq!(find(&nested(SOCKETS, &two), SOCKETS), Some(&two[..]));
        assert_eq!(find(&two, 9), None);
        for bytes in 0..two.len() {
            assert_eq!(find(&two[..bytes], INDEX), None, "{bytes} bytes");
        }
        assert_eq!(find(&[0; 8], INDEX), None, "an attribute of no length");
    }

    #[test]
    fn without_the_driver_it_says_so() {
        if let Err(error) = NbdDevice::available() {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn only_its_own_names_are_devices_of_the_driver() {
        let at = |path: &str| NbdDevice::at(Path::new(path)).map(|device| device.index);
        assert_eq!(at("/dev/nbd12"), Some(12));
        assert_eq!(
            (at("/dev/nbd0p1"), at("/dev/loop0"), at("/tmp/nbd0")),
            (None, None, None)
        );
    }
}
