//! The receiving half of a stream: bytes go into the receive buffer, or straight into the buffer of
//! a slot, and then to the machine. Passes over payload run here, where its bytes are in the cache.

use fabrix_proto::{Machine, Pass, Slot, Want};
use fabrix_rt::{Completion, Loan, Op, Shard, Token, errno};

use super::{Ended, Receiving, Stream};
use crate::outbox::Out;
use crate::pass::PassResult;
use crate::slot::Incoming;

/// Payload of which at least 16 KiB are missing is received straight into its slot's buffer. Below
/// that, a copy costs less than a system call of its own.
const DIRECT_BYTES: usize = 16 << 10;
/// After payload of at least 64 KiB, the next payload is probably as long.
const LONG_BYTES: u32 = 64 << 10;
/// Bytes to receive behind long payload: enough for the next header. The payload behind that header
/// then goes straight into its slot's buffer as well.
pub(super) const NEXT_HEADER_BYTES: usize = 256;

impl<M: Machine> Stream<M> {
    /// Takes the completion of a receive.
    ///
    /// # Errors
    /// The peer has closed the connection, or the socket failed.
    pub fn received(&mut self, completion: Completion) -> Result<(), Ended> {
        let got = usize::try_from(completion.result);
        let what = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        let Loan::Buf(buf) = completion.loan else {
            unreachable!("a receive gives its buffer back")
        };
        match what {
            Receiving::Slot(slot, start) => {
                self.filled += got.unwrap_or(0);
                self.slots[usize::from(slot.0)].incoming = Incoming::Buf(buf, start);
            }
            _ => self.inbox.take_back(buf, got.unwrap_or(0)),
        }
        self.may_receive = self.discard;
        if self.discard {
            self.inbox.consume(self.inbox.bytes().len());
        }
        match got {
            Ok(0) => Err(Ended::Closed),
            Ok(_) => Ok(()),
            Err(_) => Err(Ended::Socket(completion.result)),
        }
    }

    /// Runs the machine up to its next event. None: the machine needs more bytes.
    #[inline(always)]
    pub(super) fn step(&mut self) -> Result<Option<M::Event>, Ended> {
        loop {
            if self.discard {
                return Ok(None);
            }
            let mut out = Out {
                outbox: &mut self.outbox,
                slots: &self.slots,
                at_hand: None,
            };
            let event = match self.machine.want() {
                Want::Closed => return Err(Ended::Closed),
                Want::Header { bytes } => {
                    let arrived = self.inbox.bytes();
                    if arrived.len() < bytes {
                        return Ok(None);
                    }
                    self.machine.header(arrived, &mut out).map(|taken| {
                        self.inbox.consume(taken.bytes);
                        taken.event
                    })
                }
                Want::Payload {
                    slot,
                    offset,
                    bytes,
                    pass,
                } => {
                    let Some(intact) = self.place(slot, offset as usize, bytes as usize, pass)
                    else {
                        return Ok(None);
                    };
                    let mut out = Out {
                        outbox: &mut self.outbox,
                        slots: &self.slots,
                        at_hand: None,
                    };
                    self.machine.payload(intact, &mut out)
                }
            };
            match event {
                Ok(None) => {}
                Ok(event) => return Ok(event),
                Err(violation) => {
                    let mut out = Out {
                        outbox: &mut self.outbox,
                        slots: &self.slots,
                        at_hand: None,
                    };
                    self.machine.terminate(&violation, &mut out);
                    return Err(Ended::Violation(Box::new(violation)));
                }
            }
        }
    }

    /// Puts the wanted payload where its slot wants it. None: more bytes must arrive. Otherwise
    /// true if the result of the pass is right.
    fn place(&mut self, slot: Slot, offset: usize, bytes: usize, pass: Pass) -> Option<bool> {
        let fill = Self::fill(bytes);
        let trailer = fill + pass.trailer_bytes();
        self.settle(slot, offset, bytes, trailer);
        match &mut self.slots[usize::from(slot.0)].incoming {
            Incoming::Buf(buf, start) => {
                let from = *start + offset;
                let arrived = self.inbox.bytes();
                let more = arrived.len().min(bytes - self.filled);
                if more > 0 {
                    buf.bytes_mut()[from + self.filled..][..more].copy_from_slice(&arrived[..more]);
                    self.inbox.consume(more);
                    self.filled += more;
                }
                if self.filled < bytes || self.inbox.bytes().len() < trailer {
                    return None;
                }
                self.filled = 0;
                let (filling, after) = self.inbox.bytes()[..trailer].split_at(fill);
                let payload = &buf.bytes()[from..from + bytes];
                let intact = PassResult::of(pass, payload, filling).bytes() == after;
                self.inbox.consume(trailer);
                Some(intact)
            }
            // Payload that still counts as awaited is all there: `settle` has seen to the rest.
            Incoming::InPlace | Incoming::Awaited(..) => {
                let whole = self.inbox.bytes().get(..bytes + trailer)?;
                let (filled, after) = whole.split_at(bytes + fill);
                let intact = PassResult::of(pass, filled, &[]).bytes() == after;
                self.in_place = (self.inbox.position(), bytes);
                self.inbox.consume(bytes + trailer);
                Some(intact)
            }
        }
    }

    /// Bytes that fill a payload up to a multiple of the machine's unit. They follow the payload,
    /// and the pass covers them.
    fn fill(bytes: usize) -> usize {
        bytes.next_multiple_of(M::PAYLOAD_UNIT as usize) - bytes
    }

    /// Awaited payload stays in the receive buffer if all of it is there: the owner then copies it
    /// once, from there to where it is needed. Otherwise it goes into its buffer.
    fn settle(&mut self, slot: Slot, offset: usize, bytes: usize, trailer: usize) {
        let incoming = &mut self.slots[usize::from(slot.0)].incoming;
        let is_here = self.inbox.bytes().len() >= bytes + trailer;
        *incoming = match std::mem::take(incoming) {
            Incoming::Awaited(_, all) if is_here && (offset, bytes) == (0, all) => {
                Incoming::InPlace
            }
            Incoming::Awaited(buf, _) => Incoming::Buf(buf, 0),
            settled => settled,
        };
    }

    /// Starts the next receive, into the slot's buffer if long payload is wanted, or else into the
    /// receive buffer.
    pub(super) fn receive(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        let token = Token {
            task: self.task,
            slot: self.tokens.receive,
        };
        let socket = self.socket.clone();
        let want = if self.discard {
            Want::Closed
        } else {
            self.machine.want()
        };
        let contiguous = match want {
            Want::Payload {
                slot,
                offset,
                bytes,
                pass,
            } => {
                let rest = bytes as usize - self.filled;
                let suffices = if self.last_payload_direct {
                    1
                } else {
                    DIRECT_BYTES
                };
                let incoming = &mut self.slots[usize::from(slot.0)].incoming;
                match std::mem::take(incoming) {
                    Incoming::Buf(buf, start)
                        if rest >= suffices && self.inbox.bytes().is_empty() =>
                    {
                        self.receiving = Receiving::Slot(slot, start);
                        self.last_payload_direct = bytes >= LONG_BYTES;
                        let from = start + offset as usize + self.filled;
                        shard.start(
                            token,
                            Op::Receive {
                                socket,
                                buf,
                                start: from,
                                bytes: rest,
                            },
                        );
                        return Ok(());
                    }
                    other => *incoming = other,
                }
                let trailer = Self::fill(bytes as usize) + pass.trailer_bytes();
                if matches!(incoming, Incoming::InPlace) {
                    bytes as usize + trailer
                } else {
                    trailer
                }
            }
            Want::Header { bytes } => bytes,
            Want::Closed => 1,
        };
        let Some((buf, start, room)) = self.inbox.lend(shard, contiguous) else {
            return Err(Ended::Socket(-errno::ENOMEM));
        };
        let bytes = match std::mem::take(&mut self.last_payload_direct) {
            true => room.min(contiguous.max(NEXT_HEADER_BYTES)),
            false => room,
        };
        self.receiving = Receiving::Inbox;
        shard.start(
            token,
            Op::Receive {
                socket,
                buf,
                start,
                bytes,
            },
        );
        Ok(())
    }
}
