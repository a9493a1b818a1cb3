//! Ends of connections.

use super::*;

#[test]
fn a_connection_that_ends_gives_every_buffer_back_at_once() {
    let mut stage = Stage::logged_in();
    let first = stage.read(0, 512);
    stage.write(1, 20_000);
    stage.write(2, 512);
    let last = stage.read(3, 512);
    // The window of the last command is being closed.
    stage.respond(&last, None);
    assert_eq!(stage.next(), None);
    stage.queue.flush(&mut stage.shard).expect("open");
    stage.close(&[0, 1, 2, 3], Some(first.memory()));
}

#[test]
fn what_a_target_said_before_it_went_is_heard() {
    let mut stage = Stage::new();
    let asked = stage.only();
    let mut response = pdu(0x23, 0, asked.itt(), &[]);
    response[28 + 36..28 + 38].copy_from_slice(&[2, 1]);
    stage.say(&response, None);
    stage.hear(RDMA_LOST);
    match stage.next() {
        Some(Event::LoginFailed(failure)) => {
            assert!(failure.to_string().contains("authentication"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
}

#[test]
fn the_target_ends_the_connection_after_a_logout() {
    let mut stage = Stage::logged_in();
    let (initiator, mut out) = stage.queue.speak();
    assert!(initiator.logout(&mut out));
    drop(out);
    stage.queue.discard();
    stage.queue.flush(&mut stage.shard).expect("open");
    assert!(!stage.queue.is_drained());
    let request = stage.only();
    assert_eq!(request.bhs[0] & 0x3F, 0x06, "a Logout Request");
    stage.say(&pdu(0x26, 0x80, request.itt(), &[]), None);
    assert!(!stage.queue.is_drained());
    stage.hear(RDMA_LOST);
    assert!(stage.queue.is_drained());
    stage.close(&[], None);
}

#[test]
fn a_connection_that_fails_says_why() {
    let mut stage = Stage::logged_in();
    stage.read(0, 512);
    let pair = stage.queue.wire.pair.as_ref().expect("open");
    pair.break_with(12, "transport retry counter exceeded");
    match stage.queue.next() {
        Err(Ended::Rdma(failure)) => assert!(failure.why.contains("retry counter"), "{failure:?}"),
        other => panic!("the connection goes on: {other:?}"),
    }
    stage.close(&[0], None);
}
