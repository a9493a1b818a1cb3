//! Payload that leaves by reference to its buffer: what a peer reads late is what was sent, whatever became of the
//! buffer meanwhile.

use std::io::Read;
use std::time::{Duration, Instant};

use super::*;

const SLOT: Slot = Slot(0);
const WHAT: u8 = 1;
const LATER: u8 = 2;

/// Remembers what has ended.
#[derive(Default)]
struct Told(Vec<Completion>);

impl Task for Told {
    fn completed(&mut self, _: &mut Shard, _: u32, completion: Completion) {
        self.0.push(completion);
    }
}

/// A host's end of a connection, and the peer's.
struct Host {
    shard: Shard,
    stream: Stream<AskedFor>,
    told: Rc<RefCell<Told>>,
    far: TcpStream,
}

impl Host {
    fn new() -> Self {
        let mut shard = Shard::new(ShardConfig::default()).expect("a shard");
        let told = Rc::new(RefCell::new(Told::default()));
        let task = shard.add(told.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let socket = Socket::from(TcpStream::connect(address).expect("a listener"));
        let (far, _) = listener.accept().expect("somebody waits");
        let slots = StreamSlots {
            receive: RECEIVE,
            send: SEND,
        };
        let mut stream = Stream::new(AskedFor { pieces: 0 }, socket, task, slots, 1);
        stream.rest(true);
        stream.tell_arrivals();
        Self {
            shard,
            stream,
            told,
            far,
        }
    }

    /// Sends payload, all of it alike, until some has left from where it lies; the peer has read and got all that was
    /// sent before that, and nothing of this.
    fn say_in_place(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            assert!(Instant::now() < deadline, "all of it is copied");
            self.say();
            if self.stream.staging.in_place_to() > 0 {
                return;
            }
            assert!(self.read() == [WHAT; LONG]);
            self.stream.arrived(SLOT);
            drop(self.stream.release(SLOT));
        }
    }

    fn say(&mut self) {
        self.begin();
        self.send();
    }

    /// Says payload that does not leave yet.
    fn begin(&mut self) {
        let mut buf = place(&mut self.shard);
        buf.bytes_mut().fill(WHAT);
        self.stream.hold(SLOT, Held::Buf(buf, 0));
        let (_, mut out) = self.stream.speak();
        out.bytes(&[0; HEADER_BYTES]);
        out.payload(SLOT, 0, u32::try_from(LONG).expect("128 KiB"), false);
    }

    fn send(&mut self) {
        self.stream.flush(&mut self.shard).expect("memory");
        while self.told.borrow().0.is_empty() {
            self.shard.turn(Wait::AtMost(Duration::from_secs(1)));
        }
        let sent = self.told.borrow_mut().0.remove(0);
        self.stream.sent(sent).expect("it was sent");
    }

    /// The payload that the peer reads next.
    fn read(&mut self) -> Vec<u8> {
        let mut all = vec![0; HEADER_BYTES + LONG];
        self.far.read_exact(&mut all).expect("as much was sent");
        all.split_off(HEADER_BYTES)
    }

    /// The slot's buffer, with other bytes in it.
    fn change(&mut self) {
        let Held::Buf(mut buf, _) = self.stream.release(SLOT) else {
            unreachable!("it held one");
        };
        assert!(
            buf.bytes() == [WHAT; LONG],
            "whoever gets it back finds it as it was"
        );
        buf.bytes_mut().fill(LATER);
    }
}

#[test]
fn payload_that_may_be_unread_can_change_once_it_is_released() {
    let mut host = Host::new();
    host.say_in_place();
    host.change();
    assert!(host.read() == [WHAT; LONG]);
}

#[test]
fn so_can_what_was_held_when_the_connection_was_dropped() {
    let mut host = Host::new();
    host.say_in_place();
    host.stream = Host::new().stream;
    let mut again = place(&mut host.shard);
    again.bytes_mut().fill(LATER);
    assert!(host.read() == [WHAT; LONG]);
}

/// An answer can come while a part of its command's payload has still to be sent.
#[test]
fn so_can_payload_that_leaves_only_after_its_release() {
    let mut host = Host::new();
    host.say_in_place();
    host.begin();
    let Held::Buf(mut buf, _) = host.stream.release(SLOT) else {
        unreachable!("it held one");
    };
    host.send();
    buf.bytes_mut().fill(LATER);
    assert!(host.read() == [WHAT; LONG]);
    assert!(host.read() == [WHAT; LONG]);
}

/// What would be too dear to do for every write: the peer has said that it has read this.
#[test]
fn what_has_arrived_is_released_as_it_lies() {
    let mut host = Host::new();
    host.say_in_place();
    host.stream.arrived(SLOT);
    host.change();
    assert!(
        host.read() == [LATER; LONG],
        "a peer that lied reads what came later"
    );
}
