//! Discovery logs: with several records, empty, endless, and unreadable ones.

use std::sync::atomic::{AtomicUsize, Ordering};

use fabrix_block::Device;
use fabrix_host::ConnectErrorKind::{Protocol, Refused, Unsupported, Usage};
use fabrix_host::{Address, connect, discover};

use super::common::{Fake, NQN, Script, controller, namespace};
use super::quick;

/// A log of so many records, each with the subsystem's name and a number of its own from `number`.
fn log(records: u64, port: u16, number: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Script {
    let generations = AtomicUsize::new(0);
    let log = move |offset: u64, page: &mut [u8]| {
        for (index, record) in page.chunks_mut(1024).enumerate() {
            match offset / 1024 + index as u64 {
                0 => {
                    let generation = number(generations.fetch_add(1, Ordering::Relaxed) as u64);
                    record[..8].copy_from_slice(&generation.to_le_bytes());
                    record[8..16].copy_from_slice(&records.to_le_bytes());
                }
                at => put_record(record, at, port),
            }
        }
    };
    Script {
        log: Box::new(log),
        discovery: true,
        ..Script::default()
    }
}

fn put_record(record: &mut [u8], number: u64, port: u16) {
    record[..4].copy_from_slice(&[3, 1, 2, 0]);
    let text = port.to_string();
    record[32..32 + text.len()].copy_from_slice(text.as_bytes());
    let name = if number == 1 {
        NQN.to_owned()
    } else {
        format!("{NQN}-{number}")
    };
    record[256..256 + name.len()].copy_from_slice(name.as_bytes());
    record[512..521].copy_from_slice(b"127.0.0.1");
}

fn anonymous(fake: &Fake) -> Address {
    Address {
        subsystem: None,
        ..fake.address()
    }
}

#[test]
fn reads_a_log_of_several_records_and_finds_the_only_subsystem() {
    let fake = Fake::start(log(9, 4420, |_| 1));
    let found = discover(&anonymous(&fake), &quick()).expect("a log");
    assert_eq!(found.records.len(), 9);
    let error = connect(&anonymous(&fake), &quick())
        .err()
        .expect("nine subsystems");
    assert!(
        error.kind() == Usage && error.to_string().contains(NQN),
        "{error}"
    );

    let disk = Fake::honest();
    let service = Fake::start(log(1, disk.socket_address.port(), |_| 1));
    let found = connect(&anonymous(&service), &quick()).expect("the only subsystem");
    assert_eq!(found.geometry().blocks, super::common::DISK_BLOCKS);
}

#[test]
fn a_log_without_records_says_what_to_do() {
    let fake = Fake::start(log(0, 0, |_| 1));
    let error = connect(&anonymous(&fake), &quick())
        .err()
        .expect("no subsystem");
    assert!(
        error.kind() == Refused && error.to_string().contains("to be allowed"),
        "{error}"
    );
}

#[test]
fn a_log_that_never_ends_or_always_changes_is_given_up() {
    let check = |script: Script, word: &str| {
        let fake = Fake::start(script);
        let error = discover(&anonymous(&fake), &quick()).expect_err(word);
        assert!(
            error.kind() == Protocol && error.to_string().contains(word),
            "{error}"
        );
    };
    check(log(u64::MAX, 0, |_| 1), "no more than");
    check(log(4097, 0, |_| 1), "no more than");
    check(log(2, 0, |count| count), "changes faster");
}

#[test]
fn records_that_cannot_be_read_are_counted_and_left_out() {
    let garbage = |_: u64, page: &mut [u8]| {
        page.fill(0xFF);
        page[..8].fill(1);
        page[8..16].copy_from_slice(&3_u64.to_le_bytes());
        page[16..1024].fill(0);
    };
    let script = Script {
        log: Box::new(garbage),
        discovery: true,
        ..Script::default()
    };
    let fake = Fake::start(script);
    match discover(&anonymous(&fake), &quick()) {
        Ok(log) => assert!(
            log.records.is_empty() && log.unreadable.len() == 3,
            "{log:?}"
        ),
        Err(error) => panic!("{error}"),
    }
    let error = connect(&anonymous(&fake), &quick()).err();
    let said = error.expect("no subsystem").to_string();
    assert!(said.contains("the first is record 0: its name"), "{said}");
}

#[test]
fn a_disk_is_not_a_discovery_service() {
    let fake = Fake::honest();
    let error = discover(&fake.address(), &quick()).expect_err("it has no log");
    assert_eq!(error.kind(), Unsupported, "{error}");
    assert_eq!(controller(1, true).controller_type, 2);
    assert_eq!(namespace().size.get(), super::common::DISK_BLOCKS);
}
