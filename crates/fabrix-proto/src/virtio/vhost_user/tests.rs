//! Messages of a monitor: complete, wrong and truncated.

use super::super::{blk, feature};
use super::request as ask;
use super::*;

use alloc::vec;

use zerocopy::IntoBytes;

const OFFER: u64 = feature::VERSION_1 | feature::EVENT_INDEX | blk::feature::FLUSH;
const REGION: Region = Region {
    guest: 0x1000,
    bytes: 0x4000,
    user: 0x7000_0000,
    offset: 0,
};

fn session() -> Session {
    Session::new(OFFER, &[0; 60])
}

fn head(request: u32, flags: u32, bytes: usize) -> [u8; HEAD_BYTES] {
    let bytes = u32::try_from(bytes).expect("short");
    zerocopy::transmute!(Head {
        request,
        flags,
        bytes
    })
}

fn say(
    session: &mut Session,
    request: u32,
    body: &[u8],
    descriptors: usize,
) -> Result<Event, &'static str> {
    let head = head(request, VERSION, body.len());
    let event = session.message(&head, body, descriptors);
    event.map_err(|violation| violation.sentence())
}

fn pair(index: u32, value: u32) -> Vec<u8> {
    [index.to_ne_bytes(), value.to_ne_bytes()].concat()
}

fn table(regions: &[Region]) -> Vec<u8> {
    let count = u32::try_from(regions.len()).expect("few");
    [&pair(count, 0)[..], regions.as_bytes()].concat()
}

fn addresses(index: u32, user: u64) -> Vec<u8> {
    let numbers = [user, user + 0x200, user + 0x100, 0];
    [&pair(index, 0)[..], numbers.as_bytes()].concat()
}

/// A session that has received all messages about a queue but the kick.
fn prepared() -> Session {
    let mut session = session();
    say(
        &mut session,
        ask::SET_FEATURES,
        &(OFFER | PROTOCOL_FEATURES).to_ne_bytes(),
        0,
    )
    .expect("offered");
    say(&mut session, ask::SET_MEM_TABLE, &table(&[REGION]), 1).expect("one region");
    say(&mut session, ask::SET_VRING_NUM, &pair(0, 8), 0).expect("a size");
    say(&mut session, ask::SET_VRING_BASE, &pair(0, 5), 0).expect("a base");
    say(
        &mut session,
        ask::SET_VRING_ADDR,
        &addresses(0, REGION.user),
        0,
    )
    .expect("inside");
    session
}

#[test]
fn a_queue_begins_where_the_guest_has_it_and_ends_where_it_stood() {
    let mut session = prepared();
    let event = say(&mut session, ask::SET_VRING_KICK, &0_u64.to_ne_bytes(), 1);
    let layout = Layout {
        size: 8,
        descriptors: 0x1000,
        available: 0x1100,
        used: 0x1200,
    };
    let start = Start {
        layout,
        next: 5,
        event_index: true,
        enabled: false,
    };
    assert_eq!(event, Ok(Event::Start(0, start)));
    let early = say(&mut session, ask::SET_VRING_NUM, &pair(0, 16), 0);
    assert_eq!(early, Err("a queue is changed while it runs"));
    let enabled = say(&mut session, ask::SET_VRING_ENABLE, &pair(0, 1), 0);
    assert_eq!(enabled, Ok(Event::Enable(0, true)));
    assert_eq!(
        say(&mut session, ask::GET_VRING_BASE, &pair(0, 0), 0),
        Ok(Event::Stop(0))
    );
    let answer = session.stopped(0, 9);
    assert_eq!(answer[12..], pair(0, 9));
    say(&mut session, ask::SET_VRING_NUM, &pair(0, 16), 0).expect("it does not run any more");
}

#[test]
fn what_is_offered_is_told_and_nothing_else_is_taken() {
    let mut session = session();
    let told = say(&mut session, ask::GET_FEATURES, &[], 0);
    let body = (OFFER | PROTOCOL_FEATURES).to_ne_bytes();
    assert_eq!(told, Ok(Event::Answer(reply(ask::GET_FEATURES, &body))));
    for (kind, bits) in [
        (ask::SET_FEATURES, 1 << 26),
        (ask::SET_PROTOCOL_FEATURES, 1 << 1),
    ] {
        let taken = say(&mut session, kind, &u64::to_ne_bytes(bits), 0);
        assert!(taken.expect_err("not offered").contains("not offered"));
    }
    let unknown = say(&mut session, 33, &[0; 20], 0);
    assert!(unknown.expect_err("not offered").contains("not offered"));
}

#[test]
fn an_answer_comes_when_it_was_agreed_on_and_is_asked_for() {
    let mut session = session();
    let owner = head(ask::SET_OWNER, VERSION | NEED_REPLY, 0);
    session.message(&owner, &[], 0).expect("an owner");
    assert_eq!(session.answer(), None);
    say(
        &mut session,
        ask::SET_PROTOCOL_FEATURES,
        &OFFERED.to_ne_bytes(),
        0,
    )
    .expect("offered");
    session.message(&owner, &[], 0).expect("an owner");
    assert_eq!(session.answer(), Some(reply(ask::SET_OWNER, &[0; 8])));
    assert_eq!(session.answer(), None);
}

#[test]
fn the_space_of_the_device_is_read_and_its_one_field_set() {
    let mut config = vec![7; 60];
    config[blk::WRITEBACK_AT] = 1;
    let mut session = Session::new(OFFER, &config);
    let range =
        |offset: u32, bytes: u32, data: &[u8]| [&pair(offset, bytes)[..], &[0; 4], data].concat();
    let told = say(&mut session, ask::GET_CONFIG, &range(58, 4, &[9; 4]), 0);
    let expected = reply(ask::GET_CONFIG, &range(58, 4, &[7, 7, 0, 0]));
    assert_eq!(told, Ok(Event::Answer(expected)));
    let outside = say(&mut session, ask::GET_CONFIG, &range(255, 4, &[9; 4]), 0);
    assert_eq!(outside, Ok(Event::Answer(reply(ask::GET_CONFIG, &[]))));
    assert!(session.writeback());
    let set = say(&mut session, ask::SET_CONFIG, &range(32, 1, &[0]), 0);
    assert_eq!((set, session.writeback()), (Ok(Event::Writeback), false));
    for wrong in [
        range(0, 1, &[0]),
        range(32, 1, &[2]),
        range(32, 2, &[1]),
        range(32, 2, &[0; 2]),
    ] {
        assert!(say(&mut session, ask::SET_CONFIG, &wrong, 0).is_err());
    }
}

#[test]
fn what_a_guest_has_set_outlives_another_size() {
    let mut session = Session::new(OFFER, &[0; 60]);
    let set = [&pair(32, 1)[..], &[0; 4], &[1]].concat();
    say(&mut session, ask::SET_CONFIG, &set, 0).expect("it may be set");
    session.describe(&[5; 60]);
    let range = |data: &[u8]| [&pair(31, 2)[..], &[0; 4], data].concat();
    let told = say(&mut session, ask::GET_CONFIG, &range(&[0; 2]), 0);
    let expected = reply(ask::GET_CONFIG, &range(&[5, 1]));
    assert_eq!(told, Ok(Event::Answer(expected)));
}

fn record(bytes: u64, offset: u64, queues: u16, entries: u16) -> Vec<u8> {
    let shape = [queues.to_ne_bytes(), entries.to_ne_bytes(), [0; 2], [0; 2]];
    [
        &bytes.to_ne_bytes()[..],
        &offset.to_ne_bytes(),
        shape.as_flattened(),
    ]
    .concat()
}

#[test]
fn a_record_is_made_once_and_handed_over_again() {
    let mut session = prepared();
    let shape = Shape {
        queues: 2,
        entries: 128,
    };
    let bytes = shape.whole_bytes();
    let made = say(&mut session, ask::GET_INFLIGHT_FD, &record(9, 9, 2, 128), 0);
    let answer = reply(ask::GET_INFLIGHT_FD, &record(bytes, 0, 2, 128));
    assert_eq!(made, Ok(Event::NewRecord(bytes, answer)));
    for (told, expected) in [
        (bytes, bytes),
        (shape.bytes(), shape.bytes()),
        (1 << 40, bytes),
    ] {
        let offset = 8192;
        let taken = say(
            &mut session,
            ask::SET_INFLIGHT_FD,
            &record(told, offset, 2, 128),
            1,
        );
        let expected = Record {
            shape,
            offset,
            bytes: expected,
        };
        assert_eq!(taken, Ok(Event::Record(expected)));
    }
    say(&mut session, ask::SET_VRING_KICK, &0_u64.to_ne_bytes(), 1).expect("it is prepared");
    let late = say(
        &mut session,
        ask::SET_INFLIGHT_FD,
        &record(bytes, 0, 2, 128),
        1,
    );
    assert_eq!(late, Err("a record comes while queues run"));
}

#[test]
fn a_monitor_that_is_told_of_changes_says_where() {
    let mut session = session();
    let said = say(&mut session, ask::SET_BACKEND_REQ_FD, &[], 1);
    assert_eq!(said, Ok(Event::Channel));
    let numbers = [2_u32, 1, 0].map(u32::to_ne_bytes);
    assert_eq!(config_changed(), numbers.as_flattened());
}

#[test]
fn what_is_wrong_or_comes_too_early_is_a_sentence() {
    let kick = 0_u64.to_ne_bytes();
    let far = Region {
        guest: u64::MAX - 0xfff,
        ..REGION
    };
    let crooked = Region {
        offset: 1,
        ..REGION
    };
    let nine = vec![REGION; 9];
    let enough = Shape {
        queues: 2,
        entries: 128,
    }
    .bytes();
    let cases: [(u32, Vec<u8>, usize, &str); 27] = [
        (
            ask::SET_VRING_KICK,
            kick.to_vec(),
            1,
            "addresses are not known",
        ),
        (ask::SET_VRING_KICK, kick.to_vec(), 0, "more or fewer"),
        (
            ask::SET_VRING_KICK,
            256_u64.to_ne_bytes().to_vec(),
            0,
            "to be kicked by",
        ),
        (ask::SET_VRING_CALL, kick.to_vec(), 2, "more or fewer"),
        (
            ask::SET_VRING_CALL,
            16_u64.to_ne_bytes().to_vec(),
            1,
            "no queue of this number",
        ),
        (
            ask::SET_VRING_NUM,
            pair(16, 8),
            0,
            "no queue of this number",
        ),
        (ask::SET_VRING_NUM, pair(0, 0), 0, "power of two"),
        (ask::SET_VRING_NUM, pair(0, 24), 0, "power of two"),
        (ask::SET_VRING_NUM, pair(0, 2048), 0, "power of two"),
        (ask::SET_VRING_NUM, pair(0, 8), 1, "does not need"),
        (ask::SET_VRING_NUM, vec![0; 7], 0, "longer or shorter"),
        (ask::SET_VRING_BASE, pair(0, 1 << 16), 0, "behind its last"),
        (ask::SET_VRING_ENABLE, pair(0, 2), 0, "neither"),
        (ask::SET_MEM_TABLE, table(&[REGION]), 2, "one file for each"),
        (
            ask::SET_MEM_TABLE,
            table(&nine),
            8,
            "the length that it says",
        ),
        (ask::SET_MEM_TABLE, table(&[REGION, REGION]), 2, "overlap"),
        (
            ask::SET_MEM_TABLE,
            table(&[far]),
            1,
            "behind the last address",
        ),
        (ask::SET_BACKEND_REQ_FD, vec![], 0, "brings none"),
        (ask::SET_BACKEND_REQ_FD, vec![], 2, "or several"),
        (
            ask::GET_INFLIGHT_FD,
            record(0, 0, 0, 128),
            0,
            "no queues have",
        ),
        (
            ask::GET_INFLIGHT_FD,
            record(0, 0, 17, 128),
            0,
            "no queues have",
        ),
        (
            ask::GET_INFLIGHT_FD,
            record(0, 0, 1, 100),
            0,
            "no queues have",
        ),
        (
            ask::GET_INFLIGHT_FD,
            record(0, 0, 1, 2048),
            0,
            "no queues have",
        ),
        (
            ask::SET_INFLIGHT_FD,
            record(enough, 0, 2, 128),
            0,
            "brings none",
        ),
        (
            ask::SET_INFLIGHT_FD,
            record(enough - 1, 0, 2, 128),
            1,
            "too short",
        ),
        (
            ask::SET_INFLIGHT_FD,
            record(enough, 64, 2, 128),
            1,
            "within a page",
        ),
        (ask::SET_MEM_TABLE, table(&[crooked]), 1, "no whole pages"),
    ];
    for (kind, body, descriptors, sentence) in cases {
        let refused = say(&mut session(), kind, &body, descriptors).expect_err(sentence);
        assert!(refused.contains(sentence), "{refused}");
    }
}

#[test]
fn a_queue_outside_the_memory_does_not_begin() {
    for user in [REGION.user - 1, REGION.user + REGION.bytes - 0x200] {
        let mut session = prepared();
        say(&mut session, ask::SET_VRING_ADDR, &addresses(0, user), 0).expect("it is only said");
        let refused = say(&mut session, ask::SET_VRING_KICK, &0_u64.to_ne_bytes(), 1);
        assert_eq!(refused, Err("a queue does not lie in the guest's memory"));
    }
}

#[test]
fn a_head_that_is_none_is_refused_before_its_body_is_read() {
    assert_eq!(Session::body_bytes(&head(1, VERSION, 512)).ok(), Some(512));
    for wrong in [
        head(1, VERSION, 513),
        head(1, 2, 0),
        head(1, VERSION | REPLY, 0),
    ] {
        assert!(Session::body_bytes(&wrong).is_err());
    }
}
