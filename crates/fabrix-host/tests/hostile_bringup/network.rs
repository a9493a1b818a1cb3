//! Errors before the first command: wrong options, and unreachable networks.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use fabrix_host::ConnectErrorKind::{Timeout, Unreachable, Usage};
use fabrix_host::{Address, Options, connect};

use super::common::{Fake, NQN};
use super::quick;

#[test]
fn refuses_options_that_make_no_sense() {
    let fake = Fake::honest();
    let wrong = |options: Options, word: &str| {
        let error = connect(&fake.address(), &options).err().expect(word);
        assert!(
            error.kind() == Usage && error.to_string().contains(word),
            "{error}"
        );
    };
    wrong(
        Options {
            nr_io_queues: 0,
            ..quick()
        },
        "nr_io_queues",
    );
    wrong(
        Options {
            queue_size: 1,
            ..quick()
        },
        "queue_size",
    );
    let name = Address {
        subsystem: Some("n".repeat(300)),
        ..fake.address()
    };
    let error = connect(&name, &quick()).err().expect("not an NQN");
    assert!(
        error.kind() == Usage && error.to_string().contains("not an NQN"),
        "{error}"
    );
}

#[test]
fn says_what_is_wrong_with_the_network() {
    let free = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound");
    let address = |host: &str, port| Address {
        transport: fabrix_host::Transport::Tcp,
        host: host.to_owned(),
        port,
        subsystem: Some(NQN.to_owned()),
        nsid: None,
    };
    let check = |address: &Address, kind, word: &str| {
        let error = connect(address, &quick()).err().expect(word);
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    };
    check(
        &address("127.0.0.1", free.port()),
        Unreachable,
        "nothing listens there",
    );
    check(
        &address("no such host", 4420),
        Unreachable,
        "cannot find the host",
    );
    let (full, _waiting) = full_listener();
    let port = full.local_addr().expect("bound").port();
    check(&address("127.0.0.1", port), Timeout, "no connection within");
}

/// A listener that answers no SYN any more, because nobody accepts.
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        waiting.push(stream);
        assert!(waiting.len() < 10_000, "this system's backlog has no end");
    }
    (listener, waiting)
}

#[test]
fn a_name_with_several_addresses_is_tried_until_one_answers() {
    let fake = Fake::honest(); // on 127.0.0.1 only, while localhost may be ::1 first
    let address = Address {
        host: "localhost".to_owned(),
        ..fake.address()
    };
    connect(&address, &quick()).expect("one of localhost's addresses is ours");
}
