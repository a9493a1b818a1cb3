//! The closed list of what a task can ask of the kernel, and what comes back.
//!
//! An operation owns what it works on. The ending gives it back as a [`Loan`]; when nobody is left
//! to take it, it is freed. Nothing here touches the kernel: that is `driver/`.

use std::net::SocketAddr;

use crate::{Buf, Exchange, File, Gather, Lent, Listener, Registered, Socket};

/// An operation. Every result is what the system call gives: zero or more, or a negative errno.
#[derive(Debug)]
pub enum Op {
    /// Waits for a connection. Result 0 and [`Loan::Socket`]; `-EMFILE` and `-ENFILE` are passed
    /// on: pause, then retry.
    Accept {
        /// Where connections arrive.
        listener: Listener,
    },
    /// Connects an unconnected socket (see [`net::stream`](crate::net::stream)). Result 0; gives
    /// back [`Loan::Socket`].
    Connect {
        /// The socket to connect.
        socket: Socket,
        /// The peer.
        address: SocketAddr,
    },
    /// Receives what has arrived, at least one byte. Result: bytes, 0 at the end of the stream.
    /// [`Loan::Buf`].
    Receive {
        /// From where.
        socket: Socket,
        /// Nobody else may hold this buffer meanwhile.
        buf: Buf,
        /// First byte of the buffer to fill.
        start: usize,
        /// At most so many bytes.
        bytes: usize,
    },
    /// Sends all of it, or fails. Result: all the bytes. [`Loan::Gather`]. One at a time per socket
    /// keeps the order.
    Send {
        /// Where to.
        socket: Socket,
        /// What, in order; comes back as it is, the owner clears it.
        gather: Box<Gather>,
    },
    /// Reads from a file; may be short at its end. Result: bytes. [`Loan::Buf`].
    Read {
        /// Which file.
        file: File,
        /// Nobody else may hold this buffer meanwhile.
        buf: Buf,
        /// First byte of the buffer to fill.
        start: usize,
        /// How many bytes.
        bytes: usize,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// Writes to a file; may be short on a full disk. Result: bytes. [`Loan::Buf`].
    Write {
        /// Which file.
        file: File,
        /// The source; may be shared.
        buf: Buf,
        /// First byte of the buffer to write.
        start: usize,
        /// How many bytes.
        bytes: usize,
        /// Where in the file, in bytes.
        offset: u64,
        /// Ends only when the data is on the medium (RWF_DSYNC).
        durable: bool,
    },
    /// Reads from a file into memory that the kernel lends to the ring (IORING_OP_READ_FIXED); may
    /// be short at its end. Result: bytes; `-EFAULT`: there is no such memory; `-EOPNOTSUPP` where
    /// there is no io_uring.
    ReadRegistered {
        /// Which file.
        file: File,
        /// What is to be filled.
        memory: Registered,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// Writes such memory to a file (IORING_OP_WRITE_FIXED); may be short on a full disk. Result:
    /// as of [`Op::ReadRegistered`].
    WriteRegistered {
        /// Which file.
        file: File,
        /// The source.
        memory: Registered,
        /// Where in the file, in bytes.
        offset: u64,
        /// Ends only when the data is on the medium (RWF_DSYNC).
        durable: bool,
    },
    /// Ends when all ended writes are on the medium (fdatasync). Result 0.
    Sync {
        /// Which file.
        file: File,
    },
    /// Gives space back or zeroes it without moving data (fallocate, the size is kept). Result 0.
    Allocate {
        /// Which file or block device.
        file: File,
        /// Which of the two.
        how: Allocate,
        /// First byte.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Waits for the next message of a device that hands out one per read, as /dev/fuse does. The
    /// file is in nonblocking mode. Result: bytes. [`Loan::Buf`].
    TakeMessage {
        /// The device.
        file: File,
        /// Nobody else may hold this buffer meanwhile.
        buf: Buf,
        /// First byte of the buffer to fill.
        start: usize,
        /// The longest message.
        bytes: usize,
    },
    /// Gives a device one message in one call; it takes all of it or refuses. Result: bytes.
    /// [`Loan::Gather`].
    GiveMessage {
        /// The device.
        file: File,
        /// The message.
        gather: Box<Gather>,
    },
    /// Says something to a device's driver that only that driver understands (IORING_OP_URING_CMD),
    /// and ends when the driver has an answer, which may be when the device is gone. Result: the
    /// driver's; `-EOPNOTSUPP` where there is no io_uring.
    DeviceCommand {
        /// The device.
        file: File,
        /// The number of the command.
        opcode: u32,
        /// The first eight bytes of what is said. The rest is zero, so no memory is given to the
        /// driver.
        words: [u32; 2],
        /// What stands where other commands have an address: a number below 128 KiB, where no
        /// memory of a process lies. Result `-EINVAL` for another one.
        number: u32,
    },
    /// Gives an exchange to its FUSE, with the answer to the request that is in it, and ends when
    /// the next request is. Only for shards that take exchanges (see
    /// [`Shard::takes_exchanges`](crate::Shard::takes_exchanges)): result `-EOPNOTSUPP` in others;
    /// else zero, or a negative errno, and nothing has come. [`Loan::Exchange`].
    Exchange {
        /// What is exchanged.
        exchange: Box<Exchange>,
    },
}

/// What [`Op::Allocate`] does with the range; either way it reads as zeroes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Gives the space back (FALLOC_FL_PUNCH_HOLE).
    PunchHole,
    /// Keeps the space, zeroes it (FALLOC_FL_ZERO_RANGE).
    ZeroRange,
}

/// What comes back when an operation (of the kernel, or of a disk) ends.
#[derive(Debug)]
pub struct Completion {
    /// Zero or more, or a negative errno; of a disk: its status as a number.
    pub result: i32,
    /// What the operation held.
    pub loan: Loan,
}

/// What an operation held while in progress and gives back, or hands over.
#[derive(Debug, Default)]
pub enum Loan {
    /// Nothing.
    #[default]
    None,
    /// A buffer.
    Buf(Buf),
    /// Pages of a disk.
    Lent(Lent),
    /// What was sent.
    Gather(Box<Gather>),
    /// The accepted socket, or the one that was to be connected.
    Socket(Socket),
    /// What was exchanged.
    Exchange(Box<Exchange>),
}

impl Op {
    /// What the operation gives back when it ends.
    pub fn into_loan(self) -> Loan {
        match self {
            Self::Receive { buf, .. }
            | Self::Read { buf, .. }
            | Self::Write { buf, .. }
            | Self::TakeMessage { buf, .. } => Loan::Buf(buf),
            Self::Send { gather, .. } | Self::GiveMessage { gather, .. } => Loan::Gather(gather),
            Self::Connect { socket, .. } => Loan::Socket(socket),
            Self::Exchange { exchange, .. } => Loan::Exchange(exchange),
            Self::Accept { .. }
            | Self::ReadRegistered { .. }
            | Self::WriteRegistered { .. }
            | Self::Sync { .. }
            | Self::Allocate { .. }
            | Self::DeviceCommand { .. } => Loan::None,
        }
    }

    /// Whether it moves data of a file.
    pub(crate) fn is_of_a_file(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Write { .. }
                | Self::ReadRegistered { .. }
                | Self::WriteRegistered { .. }
        )
    }

    /// Whether only a peer can end it, so that it must be cancelled when its task is gone.
    pub fn waits_for_a_peer(&self) -> bool {
        matches!(
            self,
            Self::Accept { .. }
                | Self::Connect { .. }
                | Self::Receive { .. }
                | Self::TakeMessage { .. }
                | Self::Exchange { .. }
        )
    }
}
