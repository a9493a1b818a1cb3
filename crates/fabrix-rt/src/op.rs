//! The closed list of operations that a task can start, and their completions.
//!
//! An operation owns its buffers and handles. The completion gives them back as a [`Loan`]; they
//! are freed if the task is gone. A [driver](crate::driver) carries operations out.

use std::net::SocketAddr;

use crate::{Buf, Exchange, File, Gather, Lent, Listener, Registered, Socket};

/// An operation. Its result is that of the system call: zero or more, or a negative errno.
#[derive(Debug)]
pub enum Op {
    /// Waits for a connection. Result 0 and [`Loan::Socket`]. After `-EMFILE` or `-ENFILE` the task
    /// pauses and retries.
    Accept {
        /// The listening socket.
        listener: Listener,
    },
    /// Connects an unconnected socket (see [`net::stream`](crate::net::stream)). Result 0.
    /// [`Loan::Socket`].
    Connect {
        /// The socket to connect.
        socket: Socket,
        /// The peer.
        address: SocketAddr,
    },
    /// Receives at least one byte. Result: bytes, 0 at the end of the stream.
    /// [`Loan::Buf`].
    Receive {
        /// The connection.
        socket: Socket,
        /// The buffer to fill. It has no other holder.
        buf: Buf,
        /// First byte of the buffer to fill.
        start: usize,
        /// Most bytes to receive.
        bytes: usize,
    },
    /// Sends all bytes of a gather, or fails. Result: all bytes. [`Loan::Gather`]. A task keeps the
    /// order by one send at a time per socket.
    Send {
        /// The connection.
        socket: Socket,
        /// The bytes. The task clears the gather when it comes back.
        gather: Box<Gather>,
    },
    /// Reads from a file. Result: bytes, fewer than asked for at the end of the file.
    /// [`Loan::Buf`].
    Read {
        /// The file.
        file: File,
        /// The buffer to fill. It has no other holder.
        buf: Buf,
        /// First byte of the buffer to fill.
        start: usize,
        /// Bytes to read.
        bytes: usize,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// Writes to a file. Result: bytes, fewer than asked for on a full disk. [`Loan::Buf`].
    Write {
        /// The file.
        file: File,
        /// The source. It may have other holders.
        buf: Buf,
        /// First byte of the buffer to write.
        start: usize,
        /// Bytes to write.
        bytes: usize,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The operation ends when the data is on the medium (RWF_DSYNC).
        durable: bool,
    },
    /// Reads from a file into registered memory (IORING_OP_READ_FIXED). Result: bytes, fewer than
    /// asked for at the end of the file; `-EFAULT` for an empty place; `-EOPNOTSUPP` without
    /// io_uring.
    ReadRegistered {
        /// The file.
        file: File,
        /// The memory to fill.
        memory: Registered,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// Writes registered memory to a file (IORING_OP_WRITE_FIXED). Result: bytes, fewer than asked
    /// for on a full disk; errors as of [`Op::ReadRegistered`].
    WriteRegistered {
        /// The file.
        file: File,
        /// The source.
        memory: Registered,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The operation ends when the data is on the medium (RWF_DSYNC).
        durable: bool,
    },
    /// Makes all completed writes durable (fdatasync). Result 0.
    Sync {
        /// The file.
        file: File,
    },
    /// Zeroes a range without writing data (fallocate). The size of the file stays. Result 0.
    Allocate {
        /// The file or block device.
        file: File,
        /// Whether the range keeps its space.
        how: Allocate,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes of the range.
        bytes: u64,
    },
    /// Waits for the next message of a device that returns one message per read, as /dev/fuse does.
    /// The file is in nonblocking mode. Result: bytes. [`Loan::Buf`].
    TakeMessage {
        /// The device.
        file: File,
        /// The buffer to fill. It has no other holder.
        buf: Buf,
        /// First byte of the buffer to fill.
        start: usize,
        /// Room for the message, in bytes.
        bytes: usize,
    },
    /// Waits until a file can be read, for a channel whose events a foreign library takes. The file
    /// is in nonblocking mode. Result 0; `-EIO` for a file that has failed.
    Readable {
        /// The file.
        file: File,
    },
    /// Writes one message to a device in one call. The device takes all of it or refuses it.
    /// Result: bytes. [`Loan::Gather`].
    GiveMessage {
        /// The device.
        file: File,
        /// The message.
        gather: Box<Gather>,
    },
    /// Sends a command to the driver of a device (IORING_OP_URING_CMD) and waits for the answer, at
    /// the longest until the device is removed. Result: the driver's; `-EOPNOTSUPP` without
    /// io_uring.
    DeviceCommand {
        /// The device.
        file: File,
        /// Number of the command.
        opcode: u32,
        /// First eight bytes of the command. The rest is zero, so the driver gets no address.
        words: [u32; 2],
        /// Value of the address field: a number below 128 KiB, where no process has memory. Result
        /// `-EINVAL` for a larger one.
        number: u32,
    },
    /// Hands an exchange to FUSE, with the answer to its request, and waits for the next request.
    /// Result: zero; a negative errno without a request; `-EOPNOTSUPP` on a shard that does not
    /// take exchanges ([`Shard::takes_exchanges`](crate::Shard::takes_exchanges)).
    /// [`Loan::Exchange`].
    Exchange {
        /// The memory for the request and its answer.
        exchange: Box<Exchange>,
    },
}

/// What [`Op::Allocate`] does with the space of a range. The range reads as zeroes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Gives the space back (FALLOC_FL_PUNCH_HOLE).
    PunchHole,
    /// Keeps the space, zeroes it (FALLOC_FL_ZERO_RANGE).
    ZeroRange,
}

/// The end of an operation, or of a request at a disk.
#[derive(Debug)]
pub struct Completion {
    /// Zero or more, or a negative errno. For a request at a disk: the status as a number.
    pub result: i32,
    /// Buffer or handle of the operation.
    pub loan: Loan,
}

/// Buffer or handle that a completion gives to the task.
#[derive(Debug, Default)]
pub enum Loan {
    /// Nothing.
    #[default]
    None,
    /// A buffer.
    Buf(Buf),
    /// Pages of a disk.
    Lent(Lent),
    /// The sent gather.
    Gather(Box<Gather>),
    /// The accepted socket, or the socket of a connect.
    Socket(Socket),
    /// The exchange.
    Exchange(Box<Exchange>),
}

impl Op {
    /// Buffer or handle that the operation gives back when it ends.
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
            | Self::Readable { .. }
            | Self::ReadRegistered { .. }
            | Self::WriteRegistered { .. }
            | Self::Sync { .. }
            | Self::Allocate { .. }
            | Self::DeviceCommand { .. } => Loan::None,
        }
    }

    /// Whether the operation moves data of a file.
    pub(crate) fn is_of_a_file(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Write { .. }
                | Self::ReadRegistered { .. }
                | Self::WriteRegistered { .. }
        )
    }

    /// Whether only a peer can end the operation, so that it is cancelled when its task is removed.
    pub fn waits_for_a_peer(&self) -> bool {
        matches!(
            self,
            Self::Accept { .. }
                | Self::Connect { .. }
                | Self::Receive { .. }
                | Self::TakeMessage { .. }
                | Self::Readable { .. }
                | Self::Exchange { .. }
        )
    }
}
