//! Where a stream receives to and how much it sends at once: drivers that play the kernel, and
//! remember what they were asked for.

use std::cell::RefCell;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::rc::Rc;

use fabrix_proto::{Consumed, Machine, Pass, Sink, Slot, Violation, Want};
use fabrix_rt::driver::{Completed, Driver, Submission, Until};
use fabrix_rt::{
    Buf, Completion, Nanos, Op, Shard, ShardConfig, Socket, SpinPolicy, Task, TaskId, Wait,
};

use super::arriving::NEXT_HEADER_BYTES;
use super::{Stream, StreamSlots};
use crate::{Connection, Incoming, Outgoing};

const HEADER_BYTES: usize = 8;
const LONG: usize = 128 << 10;
/// What the kernel has at most at once.
const PACKET: usize = 65_483;

/// Every header says how long the payload behind it is; nothing is answered.
struct Lengths {
    want: Want,
}

impl Machine for Lengths {
    type Event = usize;

    fn want(&self) -> Want {
        self.want
    }

    fn header<S: Sink>(&mut self, arrived: &[u8], _: &mut S) -> Result<Consumed<usize>, Violation> {
        let length = u64::from_le_bytes(arrived[..HEADER_BYTES].try_into().expect("as wanted"));
        self.want = Want::Payload {
            slot: Slot(0),
            offset: 0,
            bytes: u32::try_from(length).expect("a test's payload"),
            pass: Pass::None,
        };
        Ok(Consumed {
            bytes: HEADER_BYTES,
            event: None,
        })
    }

    fn payload<S: Sink>(&mut self, _: bool, _: &mut S) -> Result<Option<usize>, Violation> {
        let Want::Payload { bytes, .. } = self.want else {
            unreachable!("it was wanted");
        };
        self.want = Want::Header {
            bytes: HEADER_BYTES,
        };
        Ok(Some(bytes as usize))
    }

    fn terminate<S: Sink>(&mut self, _: &Violation, _: &mut S) {}
}

/// Gives what a peer has sent, a packet at a time.
#[derive(Clone, Default)]
struct Kernel {
    sent: Rc<RefCell<Vec<u8>>>,
    /// Buffer's length, and how much of it was asked for.
    asked: Rc<RefCell<Vec<(usize, usize)>>>,
}

impl Driver for Kernel {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        _: Until,
    ) -> Nanos {
        for (token, mut op) in submissions.drain(..) {
            let Op::Receive {
                buf, start, bytes, ..
            } = &mut op
            else {
                unreachable!("nothing else is asked for");
            };
            self.asked.borrow_mut().push((buf.len(), *bytes));
            let mut sent = self.sent.borrow_mut();
            let now = sent.len().min(*bytes).min(PACKET);
            let came: Vec<u8> = sent.drain(..now).collect();
            buf.bytes_mut()[*start..][..now].copy_from_slice(&came);
            let completion = Completion {
                result: i32::try_from(now).expect("a packet"),
                loan: op.into_loan(),
            };
            endings.push((token, completion));
        }
        Nanos(0)
    }

    fn forget(&mut self, _: TaskId) {}

    fn in_flight(&self) -> usize {
        0
    }
}

struct Receiver {
    stream: Stream<Lengths>,
    came: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Task for Receiver {
    fn completed(&mut self, shard: &mut Shard, _: u32, completion: Completion) {
        if self.stream.received(completion).is_err() {
            return; // the test's end
        }
        while let Some(bytes) = self.stream.next().expect("no violation") {
            if let Incoming::Buf(buf, _) = self.stream.take_incoming(Slot(0)) {
                self.came.borrow_mut().push(buf.bytes()[..bytes].to_vec());
            }
            self.stream
                .receive_into(Slot(0), Incoming::Buf(place(shard), 0));
        }
        self.stream.flush(shard).expect("memory");
    }
}

fn place(shard: &mut Shard) -> Buf {
    shard.take_buf(LONG).expect("memory")
}

fn shard(driver: Box<dyn Driver>) -> Shard {
    let config = ShardConfig {
        spin: SpinPolicy::Never,
        ..ShardConfig::default()
    };
    Shard::with_driver(&config, driver).expect("a shard")
}

/// A stream with one slot, and the task it is to belong to.
fn stream<M: Machine>(shard: &mut Shard, machine: M) -> (Stream<M>, TaskId) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let socket = Socket::from(TcpStream::connect(address).expect("a listener"));
    let task = shard.reserve();
    let slots = StreamSlots {
        receive: RECEIVE,
        send: SEND,
    };
    (Stream::new(machine, socket, task, slots, 1), task)
}

const RECEIVE: u32 = 0;
const SEND: u32 = 1;

/// Sends payloads of these lengths, and says what was asked of the kernel meanwhile.
fn receive(lengths: &[usize]) -> Vec<(usize, usize)> {
    let kernel = Kernel::default();
    let payloads: Vec<Vec<u8>> = lengths
        .iter()
        .zip(1..)
        .map(|(length, number)| vec![number; *length])
        .collect();
    for payload in &payloads {
        let mut sent = kernel.sent.borrow_mut();
        sent.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        sent.extend_from_slice(payload);
    }
    let mut shard = shard(Box::new(kernel.clone()));
    let want = Want::Header {
        bytes: HEADER_BYTES,
    };
    let (mut stream, task) = stream(&mut shard, Lengths { want });
    stream.receive_into(Slot(0), Incoming::Buf(place(&mut shard), 0));
    stream.set_answering();
    stream.flush(&mut shard).expect("memory");
    let came = Rc::new(RefCell::new(Vec::new()));
    let receiver = Receiver {
        stream,
        came: Rc::clone(&came),
    };
    shard.install(task, Rc::new(RefCell::new(receiver)));
    while kernel.asked.borrow().is_empty() || !kernel.sent.borrow().is_empty() {
        shard.turn(Wait::Never);
    }
    shard.turn(Wait::Never);
    assert!(*came.borrow() == payloads, "payload came as it was sent");
    kernel.asked.take()
}

#[test]
fn behind_long_payload_the_next_is_received_where_it_belongs() {
    let asked = receive(&[LONG; 4]);
    let first = asked.iter().position(|(buffer, _)| *buffer == LONG);
    let after = &asked[first.expect("some of the first payload goes straight")..];
    let headers = after.iter().filter(|asked| asked.1 == NEXT_HEADER_BYTES);
    assert_eq!(headers.count(), 4, "three, and one at the end: {asked:?}");
    let beginning = NEXT_HEADER_BYTES - HEADER_BYTES;
    let rest = after
        .iter()
        .filter(|asked| **asked == (LONG, LONG - beginning));
    assert_eq!(rest.count(), 3, "{asked:?}");
}

#[test]
fn behind_short_payload_as_much_is_received_as_there_is_room_for() {
    let asked = receive(&[LONG, LONG, 4096, 4096]);
    let (_, last) = asked.last().expect("it asks to the end");
    assert!(*last > 4096, "{asked:?}");
    let asked = receive(&[32 << 10; 8]);
    assert!(
        asked.iter().all(|asked| asked.1 != HEADER_BYTES),
        "{asked:?}"
    );
}

/// A peer has asked for so many pieces of payload, and says nothing more.
struct AskedFor {
    pieces: usize,
}

impl Machine for AskedFor {
    type Event = ();

    fn send_data<S: Sink>(&mut self, out: &mut S) -> u32 {
        if self.pieces == 0 {
            return 0;
        }
        self.pieces -= 1;
        out.bytes(&[0; HEADER_BYTES]);
        let bytes = u32::try_from(LONG).expect("128 KiB");
        out.payload(Slot(0), 0, bytes, Pass::None);
        bytes
    }

    fn want(&self) -> Want {
        Want::Header {
            bytes: HEADER_BYTES,
        }
    }

    fn header<S: Sink>(&mut self, _: &[u8], _: &mut S) -> Result<Consumed<()>, Violation> {
        unreachable!("nothing arrives")
    }

    fn payload<S: Sink>(&mut self, _: bool, _: &mut S) -> Result<Option<()>, Violation> {
        unreachable!("nothing arrives")
    }

    fn terminate<S: Sink>(&mut self, _: &Violation, _: &mut S) {}
}

/// Takes all that is sent, a send a turn, and receives nothing.
#[derive(Clone, Default)]
struct Taker {
    sends: Rc<RefCell<Vec<usize>>>,
}

impl Driver for Taker {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        _: Until,
    ) -> Nanos {
        for (token, op) in submissions.drain(..) {
            if let Op::Send { gather, .. } = &op {
                self.sends.borrow_mut().push(gather.total_bytes());
                let completion = Completion {
                    result: 0,
                    loan: op.into_loan(),
                };
                endings.push((token, completion));
            }
        }
        Nanos(0)
    }

    fn forget(&mut self, _: TaskId) {}

    fn in_flight(&self) -> usize {
        0
    }
}

/// Says a command after every send.
struct Sender {
    stream: Stream<AskedFor>,
}

impl Task for Sender {
    fn completed(&mut self, shard: &mut Shard, _: u32, completion: Completion) {
        self.stream.sent(completion).expect("it was sent");
        self.stream.speak().1.bytes(&[1; COMMAND_BYTES]);
        self.stream.flush(shard).expect("memory");
    }
}

const COMMAND_BYTES: usize = 72;

#[test]
fn a_command_waits_for_no_more_of_the_data_asked_for_than_one_call_sends() {
    let taker = Taker::default();
    let mut shard = shard(Box::new(taker.clone()));
    let (mut stream, task) = stream(&mut shard, AskedFor { pieces: 5 });
    stream.send_from(Slot(0), Outgoing::Buf(place(&mut shard), 0));
    stream.flush(&mut shard).expect("memory");
    shard.install(task, Rc::new(RefCell::new(Sender { stream })));
    while taker.sends.borrow().len() < 4 {
        shard.turn(Wait::Never);
    }
    let piece = HEADER_BYTES + LONG;
    let expected = [
        2 * piece,
        COMMAND_BYTES + 2 * piece,
        COMMAND_BYTES + piece,
        COMMAND_BYTES,
    ];
    assert_eq!(taker.sends.borrow()[..4], expected);
}
