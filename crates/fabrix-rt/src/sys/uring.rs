//! The ring: operations in progress, and all that they own.
//!
//! A table owns every buffer, list and handle of an operation from before the kernel can see the
//! operation until its completion was reaped. So no memory is freed while the kernel uses it. This
//! is the whole safety argument, so the table stands here and not with the policy in
//! `platform/driver/uring.rs`.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

use super::entry::Form;
use super::fallocate;
use super::socket::RawAddress;
use crate::bell::Bell;
use crate::{Op, Poller, Socket, TaskId, Token};

#[cfg(test)]
mod tests;

/// One ring and the operations in progress on it.
pub(crate) struct Ring<E: Form> {
    ring: IoUring<E>,
    table: Vec<Entry>,
    free: Vec<u32>,
    in_flight: usize,
    wake: Option<Wake>,
}

/// One place of the table. A cancel names the generation too, so a late cancel misses.
struct Entry {
    generation: u32,
    held: Held,
}

/// What a place of the table owns until its completion is reaped.
enum Held {
    Nothing,
    Op {
        token: Token,
        op: Op,
        _address: Option<Box<RawAddress>>,
    },
    /// A descriptor to report once. The kernel writes nothing.
    Watch {
        number: u32,
        task: TaskId,
        _poller: Rc<dyn Poller>,
    },
    Wake(Wake),
}

/// The bell whose event other threads signal, and the place for the count that the kernel reads.
pub(crate) struct Wake {
    bell: Arc<Bell>,
    count: Box<[u8; 8]>,
}

/// The meaning of one completion.
pub(crate) enum Reaped {
    /// The bell was rung. The wake-up is no longer armed.
    Wake,
    /// The answer to a cancel.
    Cancel,
    /// The descriptor of a poller is readable, or it has failed with a negative errno.
    Watched {
        number: u32,
        result: Result<(), i32>,
    },
    /// An operation has ended and gives back what it owned.
    Ended {
        token: Token,
        op: Op,
        result: i32,
        accepted: Option<Socket>,
    },
}

/// An operation that was not pushed.
pub(crate) enum NotTaken {
    /// The queue is full: submit, then try again.
    Full(Token, Op),
    /// The entry cannot express the operation: a negative errno.
    Invalid(Token, Op, i32),
}

impl<E: Form> Ring<E> {
    /// A ring for the calling thread.
    pub(crate) fn new(entries: u32, bell: Arc<Bell>) -> io::Result<Self> {
        let ring = build(entries)?;
        let wake = Some(Wake {
            bell,
            count: Box::new([0; 8]),
        });
        Ok(Self {
            ring,
            table: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            wake,
        })
    }

    /// Operations in progress. The wake-up and watches are not counted.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether no entry can be pushed before the next submission.
    pub(crate) fn is_full(&mut self) -> bool {
        self.ring.submission().is_full()
    }

    /// Whether a call of [`Ring::submit`] would do anything: submit entries, run deferred work, or
    /// move completions into the queue.
    pub(crate) fn has_work_for_the_kernel(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Whether a completion is there, or would be after [`Ring::submit`]. A look into memory.
    pub(crate) fn something_happened(&mut self) -> bool {
        if !self.ring.completion().is_empty() {
            return true;
        }
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Pushes an operation into the submission queue. The table owns it until its completion is
    /// reaped.
    pub(crate) fn push(&mut self, token: Token, mut op: Op) -> Result<(), NotTaken> {
        if self.is_full() {
            return Err(NotTaken::Full(token, op));
        }
        let address = match &op {
            Op::Connect { address, .. } => Some(Box::new(RawAddress::new(address))),
            _ => None,
        };
        let mut entry: E = match describe(&mut op, address.as_deref()) {
            Ok(entry) => entry,
            Err(errno) => return Err(NotTaken::Invalid(token, op, errno)),
        };
        let name = self.hold(Held::Op {
            token,
            op,
            _address: address,
        });
        self.in_flight += 1;
        entry.set_user_data(name);
        self.push_entry(&entry);
        Ok(())
    }

    /// Arms the wake-up. False: the queue is full, and the wake-up is not armed.
    pub(crate) fn arm_wake(&mut self) -> bool {
        if self.wake.is_some() && self.is_full() {
            return false;
        }
        let Some(mut wake) = self.wake.take() else {
            return true;
        };
        let descriptor = types::Fd(wake.bell.event().as_fd().as_raw_fd());
        let entry = opcode::Read::new(descriptor, wake.count.as_mut_ptr(), 8).build();
        let name = self.hold(Held::Wake(wake));
        self.push_entry(&entry.user_data(name).into());
        true
    }

    /// Asks for one report when the descriptor of a poller is readable. False: the queue is full.
    pub(crate) fn watch(&mut self, number: u32, task: TaskId, poller: &Rc<dyn Poller>) -> bool {
        if self.is_full() {
            return false;
        }
        let descriptor = types::Fd(poller.waitable().as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).build();
        let name = self.hold(Held::Watch {
            number,
            task,
            _poller: Rc::clone(poller),
        });
        self.push_entry(&entry.user_data(name).into());
        true
    }

    /// Cancels the operations of a task that wait for a peer, and its watches. All of them still
    /// end, each with its completion. False: the queue was full, and not all were reached.
    pub(crate) fn cancel(&mut self, task: TaskId) -> bool {
        let waits = |held: &Held| match held {
            Held::Op { token, op, .. } => token.task == task && op.waits_for_a_peer(),
            Held::Watch { task: of, .. } => *of == task,
            Held::Wake(_) | Held::Nothing => false,
        };
        self.cancel_where(waits)
    }

    /// Makes an empty table of registered buffers. Only drivers of the kernel fill it, with memory
    /// of theirs. No address of this process ever enters it.
    pub(crate) fn make_table(&mut self, places: u16) -> io::Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_buffers_sparse(places.into())
    }

    /// Submits the queued entries and runs deferred work of the kernel, without waiting.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()?;
        Ok(())
    }

    /// Submits the queued entries and waits for one completion, a signal or the timeout.
    pub(crate) fn submit_and_wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        match timeout {
            None => submitter.submit_and_wait(1)?,
            Some(timeout) => {
                let time = types::Timespec::from(timeout);
                submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&time))?
            }
        };
        Ok(())
    }

    /// Takes one completion.
    pub(crate) fn reap(&mut self) -> Option<Reaped> {
        let completion = self.ring.completion().next()?;
        let name = completion.user_data();
        if name == CANCEL {
            return Some(Reaped::Cancel);
        }
        let result = completion.result();
        Some(match self.release(name) {
            Held::Wake(wake) => {
                self.wake = Some(wake);
                Reaped::Wake
            }
            Held::Op { token, mut op, .. } => {
                self.in_flight -= 1;
                if let Op::Exchange { exchange } = &mut op {
                    exchange.came(result);
                }
                let accepted = accepted(&op, result);
                Reaped::Ended {
                    token,
                    op,
                    result,
                    accepted,
                }
            }
            Held::Watch { number, .. } => Reaped::Watched {
                number,
                result: readable(result),
            },
            Held::Nothing => unreachable!("every operation completes once: none asks for more"),
        })
    }

    fn hold(&mut self, held: Held) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Entry {
                generation: 0,
                held: Held::Nothing,
            });
            self.free.reserve(self.table.len()); // so that release never allocates
            u32::try_from(self.table.len() - 1).expect("fewer operations than 2^32 fit into memory")
        });
        let entry = &mut self.table[index as usize];
        entry.held = held;
        u64::from(entry.generation) << 32 | u64::from(index)
    }

    fn release(&mut self, name: u64) -> Held {
        let index = index_of(name);
        let entry = &mut self.table[index as usize];
        entry.generation = (entry.generation + 1) & GENERATION_MAX;
        self.free.push(index);
        mem::replace(&mut entry.held, Held::Nothing)
    }

    fn push_entry(&mut self, entry: &E) {
        // SAFETY: the table owns all memory that the entry points to, from before the push until
        // the completion was reaped:
        // - buffers and lists of parts lie in the Op, and `describe` has checked every range;
        // - a socket address, and the count of the wake-up, lie in boxes beside it;
        // - handles keep the descriptors open;
        // - a watch names a descriptor and no memory.
        // Registered memory belongs to the kernel and is named by a number (see `make_table`). FUSE
        // touches the memory of an exchange only while a command for it is in the table: the kernel
        // itself has written the number by which a command names an exchange.
        // WHY UNSAFE: io_uring takes raw addresses; there is no safe form.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the caller has seen room");
    }

    fn cancel_where(&mut self, chosen: impl Fn(&Held) -> bool) -> bool {
        for index in 0..self.table.len() {
            let entry = &self.table[index];
            if !chosen(&entry.held) {
                continue;
            }
            let name = u64::from(entry.generation) << 32 | index as u64;
            if self.is_full() && (self.submit().is_err() || self.is_full()) {
                return false;
            }
            let entry = opcode::AsyncCancel::new(name).build().user_data(CANCEL);
            self.push_entry(&entry.into());
        }
        true
    }

    /// Cancels everything and waits for the completions. True: the kernel uses no memory of the
    /// table any more.
    fn drain(&mut self) -> bool {
        let deadline = Instant::now() + DRAIN_TIME;
        let mut cancelled = false;
        loop {
            while self.reap().is_some() {} // drops what the operations owned
            if self.in_flight == 0 && self.wake.is_some() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            cancelled = cancelled || self.cancel_where(|held| !matches!(held, Held::Nothing));
            // After an error the loop looks again, until the deadline.
            let _ = self.submit_and_wait(Some(DRAIN_STEP));
        }
    }
}

impl<E: Form> Drop for Ring<E> {
    fn drop(&mut self) {
        if !self.drain() {
            // The kernel may still write to the buffers, for instance when a disk never answers. So
            // the table is leaked.
            mem::forget(mem::take(&mut self.table));
        }
    }
}

/// Makes a ring with the features that every shard needs: it serves one thread, it runs deferred
/// work only when that thread enters the kernel, and a flag in memory tells of deferred work.
pub(crate) fn build<E: Form>(entries: u32) -> io::Result<IoUring<E>> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(entries.max(1).saturating_mul(COMPLETIONS_PER_ENTRY))
        .build(entries.max(1))
}

/// The entry for an operation, without its name. Panics for a range outside its buffer, and for a
/// shared buffer that is to be filled.
fn describe<E: Form>(op: &mut Op, address: Option<&RawAddress>) -> Result<E, i32> {
    let entry = match op {
        Op::Accept { listener } => {
            let descriptor = types::Fd(listener.as_raw_fd());
            opcode::Accept::new(descriptor, ptr::null_mut(), ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Op::Connect { socket, .. } => {
            let address = address.expect("made by `push` for every connect");
            opcode::Connect::new(
                types::Fd(socket.as_raw_fd()),
                address.pointer(),
                address.bytes(),
            )
            .build()
        }
        Op::Receive {
            socket,
            buf,
            start,
            bytes,
        } => {
            let target = buf.chunk().target(*start, *bytes).as_ptr();
            opcode::Recv::new(types::Fd(socket.as_raw_fd()), target, count(*bytes)).build()
        }
        Op::Send { socket, gather } => {
            let bytes = gather.bytes_at_once();
            let header = gather.wire().header(bytes);
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            opcode::SendMsg::new(types::Fd(socket.as_raw_fd()), header)
                .flags(flags.cast_unsigned())
                .build()
        }
        Op::Read {
            file,
            buf,
            start,
            bytes,
            offset,
        } => {
            let target = buf.chunk().target(*start, *bytes).as_ptr();
            opcode::Read::new(types::Fd(file.as_raw_fd()), target, count(*bytes))
                .offset(in_range(*offset)?)
                .build()
        }
        Op::Write {
            file,
            buf,
            start,
            bytes,
            offset,
            durable,
        } => {
            let source = buf.chunk().source(*start, *bytes).as_ptr();
            opcode::Write::new(types::Fd(file.as_raw_fd()), source, count(*bytes))
                .offset(in_range(*offset)?)
                .rw_flags(if *durable { libc::RWF_DSYNC } else { 0 })
                .build()
        }
        Op::ReadRegistered {
            file,
            memory,
            offset,
        } => {
            let (file, from_its_start) = (types::Fd(file.as_raw_fd()), ptr::null_mut());
            opcode::ReadFixed::new(file, from_its_start, memory.bytes, memory.place)
                .offset(in_range(*offset)?)
                .build()
        }
        Op::WriteRegistered {
            file,
            memory,
            offset,
            durable,
        } => {
            let (file, from_its_start) = (types::Fd(file.as_raw_fd()), ptr::null());
            opcode::WriteFixed::new(file, from_its_start, memory.bytes, memory.place)
                .offset(in_range(*offset)?)
                .rw_flags(if *durable { libc::RWF_DSYNC } else { 0 })
                .build()
        }
        Op::Sync { file } => opcode::Fsync::new(types::Fd(file.as_raw_fd()))
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        Op::Allocate {
            file,
            how,
            offset,
            bytes,
        } => opcode::Fallocate::new(types::Fd(file.as_raw_fd()), in_range(*bytes)?)
            .offset(in_range(*offset)?)
            .mode(fallocate::mode(*how))
            .build(),
        Op::TakeMessage {
            file,
            buf,
            start,
            bytes,
        } => {
            let target = buf.chunk().target(*start, *bytes).as_ptr();
            opcode::Read::new(types::Fd(file.as_raw_fd()), target, count(*bytes)).build()
        }
        Op::Readable { file } => {
            let events = u32::from(libc::POLLIN.cast_unsigned());
            opcode::PollAdd::new(types::Fd(file.as_raw_fd()), events).build()
        }
        Op::GiveMessage { file, gather } => {
            let (parts, count) = gather.wire().parts_to_send();
            opcode::Writev::new(types::Fd(file.as_raw_fd()), parts, count).build()
        }
        // A command must not give the driver an address of this process. The area of a command of
        // ublk has an address in its second half, which is zero here; other drivers refuse such a
        // short area. The address field of the entry is checked by `no_address`.
        Op::DeviceCommand {
            file,
            opcode,
            words,
            number,
        } => opcode::UringCmd16::new(types::Fd(file.as_raw_fd()), *opcode)
            .cmd(area(*words))
            .addr(Some(no_address(*number)?))
            .build(),
        Op::Exchange { exchange } => return E::exchange(exchange),
    };
    Ok(entry.into())
}

/// Two words and zeroes.
fn area(words: [u32; 2]) -> [u8; 16] {
    let mut area = [0; 16];
    area[..4].copy_from_slice(&words[0].to_ne_bytes());
    area[4..8].copy_from_slice(&words[1].to_ne_bytes());
    area
}

/// A number at which no process has memory, so that a driver that uses it as an address fails.
fn no_address(number: u32) -> Result<u64, i32> {
    if number < NUMBERS_END {
        Ok(number.into())
    } else {
        Err(-libc::EINVAL)
    }
}

/// The meaning of a poll's result, which is a set of events or a negative errno.
pub(crate) fn readable(result: i32) -> Result<(), i32> {
    match result {
        errno if errno < 0 => Err(errno),
        events if events & i32::from(libc::POLLIN) != 0 => Ok(()),
        _ => Err(-libc::EIO),
    }
}

/// The socket that the result of an accept names.
fn accepted(op: &Op, result: i32) -> Option<Socket> {
    if result < 0 || !matches!(op, Op::Accept { .. }) {
        return None;
    }
    // SAFETY: the kernel has just made this descriptor for the accept, and the completion is reaped
    // once. So nobody else owns it. WHY UNSAFE: ownership of a number cannot be checked.
    Some(Socket::from(unsafe { OwnedFd::from_raw_fd(result) }))
}

/// Refuses offsets that are negative as signed numbers. -1 would mean the position of the file.
fn in_range(value: u64) -> Result<u64, i32> {
    if i64::try_from(value).is_ok() {
        Ok(value)
    } else {
        Err(-libc::EINVAL)
    }
}

fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("no buffer is longer than 4 MiB")
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the index is the lower half"
)]
fn index_of(name: u64) -> u32 {
    name as u32
}

/// Name of all cancels. No place has it, because generations are smaller.
const CANCEL: u64 = u64::MAX;
const GENERATION_MAX: u32 = u32::MAX >> 1;
/// No process has memory below this address: programs and mappings lie far above.
const NUMBERS_END: u32 = 128 << 10;
/// Size of the completion queue per entry: several batches may complete before one turn reaps.
const COMPLETIONS_PER_ENTRY: u32 = 8;
/// Time for which a dropped ring waits for its operations. Sockets end at once; disks end within
/// their timeouts, or never.
const DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_STEP: Duration = Duration::from_millis(100);
