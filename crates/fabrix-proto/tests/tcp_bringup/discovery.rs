//! Discovery logs: read whole, read again, and given up.

use fabrix_proto::Nanos;
use fabrix_proto::nvme::bringup::{
    Bringup, BringupError, DiscoveredFamily, DiscoveredSubtype, DiscoveredTransport, Found, Purpose,
};

use super::{Fake, SUBSYSTEM, config, record, run};

fn discover(fake: &mut Fake) -> Result<fabrix_proto::nvme::bringup::DiscoveryLog, BringupError> {
    run(fake, Purpose::Discovery).map(|facts| match facts.found {
        Found::Discovery(log) => log,
        other => panic!("a log was expected: {other:?}"),
    })
}

#[test]
fn a_discovery_log_is_read_whole_and_as_plain_values() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.log = (0..6)
        .map(|i| record(format!("10.0.0.{i}").as_bytes(), SUBSYSTEM))
        .collect();
    let log = discover(&mut fake).expect("it is good");
    assert_eq!(
        fake.asked[fake.asked.len() - 4..],
        ["log 0 1024", "log 1024 4096", "log 5120 2048", "log 0 1024"]
    );
    assert_eq!(
        (log.generation, log.records.len(), log.unreadable.len()),
        (1, 6, 0)
    );
    let record = &log.records[5];
    assert_eq!(
        (record.address.as_str(), record.service.as_str()),
        ("10.0.0.5", "4420")
    );
    assert_eq!(record.transport, DiscoveredTransport::Tcp);
    assert_eq!(
        (record.family, record.subtype),
        (DiscoveredFamily::Ipv4, DiscoveredSubtype::Nvm)
    );
    assert_eq!((record.secure_channel, record.security), (1, 2));
    assert_eq!(record.subsystem.as_str(), SUBSYSTEM);
}

#[test]
fn an_empty_discovery_log_is_a_log() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.log = vec![];
    assert_eq!(discover(&mut fake).expect("it is good").records, []);
}

#[test]
fn a_log_that_changed_meanwhile_is_read_again() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.generations = vec![1, 2, 2];
    let log = discover(&mut fake).expect("it is good");
    assert_eq!((log.generation, log.records.len()), (2, 1));
    let mut fake = Fake::new(Purpose::Discovery);
    fake.generations = (0..100).collect();
    let error = discover(&mut fake).expect_err("it never stops");
    assert!(error.to_string().contains("faster"), "{error}");
    assert!(fake.asked.len() < 40, "it gave up soon");
}

#[test]
fn records_that_cannot_be_read_are_told_apart_with_the_reason() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.log = vec![
        record(b"", SUBSYSTEM),
        record(b"10.0.0.1\x1b[2J", SUBSYSTEM),
        record(b"10.0.0.1", ""),
        record(b"10.0.0.1", "nqn.bad\x07"),
        record(b"10.0.0.1", SUBSYSTEM),
    ];
    fake.log[3][256..512].fill(b'x');
    let log = discover(&mut fake).expect("it is good");
    let unreadable: Vec<_> = log.unreadable.iter().map(|it| it.number).collect();
    assert_eq!(log.records.len(), 1);
    assert_eq!(unreadable, [0, 1, 2, 3]);
    for (record, why) in log
        .unreadable
        .iter()
        .zip(["TRADDR", "TRADDR", "SUBNQN", "SUBNQN"])
    {
        assert!(record.why.contains(why), "{log:?}");
    }
}

#[test]
fn absurd_discovery_headers_are_refused() {
    for (at, value, words) in [
        (8, 4097_u64, "4097 records"),
        (8, u64::MAX, "records"),
        (16, 1, "record format 1"),
    ] {
        let mut bringup = Bringup::new(config(Purpose::Discovery));
        let mut fake = Fake::new(Purpose::Discovery);
        let error = loop {
            let step = bringup.next(Nanos(u64::MAX - 1));
            let (entry, mut data) = fake.answer(&step);
            if fake.asked.last().is_some_and(|what| what == "log 0 1024") {
                data[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            if let Err(error) = bringup.answered(entry, &data, Nanos(u64::MAX - 1)) {
                break error;
            }
            fake.csts = vec![1];
        };
        assert!(error.to_string().contains(words), "{error}");
    }
}
