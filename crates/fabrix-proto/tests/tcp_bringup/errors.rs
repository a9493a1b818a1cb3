//! Controllers that refuse, that never become ready, and that say what cannot be.

use fabrix_proto::Nanos;
use fabrix_proto::nvme::bringup::{Bringup, BringupErrorKind as Kind, Purpose};
use fabrix_proto::nvme::identify::{IdentifyController, IdentifyNamespace};
use fabrix_proto::nvme::spec::{CompletionEntry, Status};

use super::{Fake, IO, config, run};

/// What a change to a good controller leads to.
fn check(purpose: Purpose, change: impl FnOnce(&mut Fake), kind: Kind, words: &str) {
    let mut fake = Fake::new(purpose);
    change(&mut fake);
    let error = run(&mut fake, purpose).expect_err(words);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_refused_connect_says_what_to_do() {
    let check = |status, dword0, kind, words| {
        check(
            IO,
            |fake| fake.connect = CompletionEntry::new(status, dword0),
            kind,
            words,
        );
    };
    let wrong = Status::CONNECT_INVALID_PARAMETERS;
    check(
        Status::CONNECT_INVALID_HOST,
        0,
        Kind::Refused,
        "does not allow this host",
    );
    check(wrong, 1 << 16 | 256, Kind::WrongNqn, "no such subsystem");
    check(wrong, 1 << 16 | 512, Kind::Refused, "host NQN");
    check(wrong, 1 << 16, Kind::Refused, "host id");
    check(wrong, 1 << 16 | 16, Kind::Broken, "controller id");
    check(wrong, 44, Kind::Broken, "queue's size");
    check(wrong, 256, Kind::Broken, "a parameter of Connect");
    check(
        Status::AUTHENTICATION_REQUIRED,
        0,
        Kind::AuthRequired,
        "authentication",
    );
    check(
        Status::CONNECT_INCOMPATIBLE_FORMAT,
        0,
        Kind::Unsupported,
        "Incompatible Format",
    );
    check(Status::INTERNAL_ERROR, 0, Kind::Broken, "Internal Error");
    check(
        Status::SUCCESS,
        1 << 17 | 7,
        Kind::AuthRequired,
        "authentication",
    );
    check(
        Status::SUCCESS,
        1 << 18 | 7,
        Kind::AuthRequired,
        "authentication",
    );
    check(Status::SUCCESS, 0xFFFF, Kind::Broken, "reserved id");
    check(Status::SUCCESS, 8, Kind::Broken, "calls itself 7");
}

#[test]
fn what_may_pass_is_worth_a_retry_and_what_lasts_is_not() {
    let retry = |status, dword0| {
        let mut fake = Fake::new(IO);
        fake.connect = CompletionEntry::new(status, dword0);
        run(&mut fake, IO)
            .expect_err("it is refused")
            .is_worth_a_retry()
    };
    assert!(retry(Status::CONNECT_CONTROLLER_BUSY, 0));
    assert!(retry(Status::INTERNAL_ERROR, 0));
    assert!(!retry(Status::CONNECT_INVALID_HOST, 0));
    assert!(!retry(Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 256));
    assert!(!retry(Status::INTERNAL_ERROR.no_retry(), 0));
}

#[test]
fn a_command_without_an_answer_is_named() {
    let mut bringup = Bringup::new(config(IO));
    let mut fake = Fake::new(IO);
    for _ in 0..2 {
        let step = bringup.next(Nanos(0));
        let (entry, data) = fake.answer(&step);
        bringup
            .answered(entry, &data, Nanos(0))
            .expect("it is good");
    }
    bringup.next(Nanos(0));
    let error = bringup.no_answer();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.to_string().contains("Property Get of VS") && error.is_worth_a_retry());
}

#[test]
fn a_controller_that_never_becomes_ready_is_given_up_when_cap_to_has_passed() {
    let mut fake = Fake::new(IO);
    fake.csts = vec![0];
    let error = run(&mut fake, IO).expect_err("it is never ready");
    assert_eq!(error.kind(), Kind::Timeout);
    let polls = fake.asked.iter().filter(|what| *what == "csts").count();
    assert_eq!(polls, 101, "1000 ms, every 10 ms");
}

#[test]
fn a_fatal_status_and_impossible_capabilities_are_errors() {
    check(IO, |fake| fake.csts = vec![0, 3], Kind::Broken, "CSTS.CFS");
    check(IO, |fake| fake.cap &= !0xFFFF, Kind::Broken, "MQES");
    check(
        IO,
        |fake| fake.cap &= !(1 << 37),
        Kind::Unsupported,
        "NVM command set",
    );
    for question in [
        "cap",
        "vs",
        "cc",
        "csts",
        "identify 1 0",
        "queues 3",
        "identify 2 0",
    ] {
        let fails = Some((question, Status::INVALID_FIELD));
        check(
            IO,
            |fake| fake.fails = fails,
            Kind::Broken,
            "Invalid Field in Command",
        );
    }
}

#[test]
fn a_controller_that_cannot_be_used_says_why() {
    let check = |change: fn(&mut IdentifyController), kind, words| {
        check(IO, |fake| change(&mut fake.controller), kind, words);
    };
    check(|it| it.sgl_support.set(0), Kind::Unsupported, "SGL");
    check(
        |it| it.in_capsule_offset.set(1),
        Kind::Unsupported,
        "ICDOFF",
    );
    check(|it| it.command_capsule_size.set(3), Kind::Broken, "IOCCSZ");
    check(|it| it.response_capsule_size.set(0), Kind::Broken, "IOCCSZ");
    check(
        |it| it.submission_entry_sizes = 0x77,
        Kind::Unsupported,
        "SQES",
    );
    check(
        |it| it.completion_entry_sizes = 0x33,
        Kind::Unsupported,
        "CQES",
    );
    check(
        |it| it.controller_type = 2,
        Kind::Unsupported,
        "discovery controller",
    );
    check(|it| it.controller_type = 3, Kind::Unsupported, "no I/O");
    check(
        |it| it.subsystem_nqn[4] = b'3',
        Kind::Broken,
        "calls itself nqn.3026",
    );
    check(
        |it| it.subsystem_nqn = [b'x'; 256],
        Kind::Broken,
        "not ended",
    );
    check(|it| it.namespaces.set(1), Kind::Broken, "above NN");
}

#[test]
fn a_namespace_that_is_not_there_says_so() {
    let check = |nsids: &[u32], kind, words| {
        check(IO, |fake| fake.nsids = nsids.to_vec(), kind, words);
    };
    check(&[], Kind::Unsupported, "no namespace 2");
    check(&[1, 3], Kind::Unsupported, "no namespace 2");
    check(&[2, 1], Kind::Broken, "ascending");
    check(&[2, 2], Kind::Broken, "ascending");
    check(&[2, 0xFFFF_FFFF], Kind::Broken, "above NN");
    let first = Purpose::Io {
        nsid: None,
        queues: 1,
    };
    let mut fake = Fake::new(first);
    fake.nsids = vec![];
    let error = run(&mut fake, first).expect_err("there is none");
    assert!(error.to_string().contains("no namespace"), "{error}");
}

#[test]
fn a_namespace_that_cannot_be_used_says_why() {
    let check = |change: fn(&mut IdentifyNamespace), kind, words| {
        check(IO, |fake| change(&mut fake.namespace), kind, words);
    };
    check(|it| it.size.set(0), Kind::Unsupported, "no capacity");
    check(|it| it.capacity.set(0), Kind::Unsupported, "no capacity");
    check(|it| it.capacity.set(1 << 21), Kind::Broken, "make no sense");
    check(|it| it.size.set(u64::MAX), Kind::Broken, "make no sense");
    check(|it| it.size.set(1 << 52), Kind::Broken, "make no sense");
    check(|it| it.format = 2, Kind::Broken, "no LBA format 2");
    check(|it| it.format = 0x6F, Kind::Broken, "no LBA format 63");
    check(
        |it| it.lba_formats[1].data_shift = 8,
        Kind::Unsupported,
        "2^8",
    );
    check(
        |it| it.lba_formats[1].data_shift = 17,
        Kind::Unsupported,
        "2^17",
    );
    check(
        |it| it.lba_formats[1].data_shift = 255,
        Kind::Unsupported,
        "2^255",
    );
    check(
        |it| it.lba_formats[1].metadata_bytes.set(8),
        Kind::Unsupported,
        "metadata",
    );
    check(|it| it.protection = 1, Kind::Unsupported, "metadata");
}

#[test]
fn descriptors_of_other_command_sets_and_cut_ones_are_errors() {
    check(
        IO,
        |fake| fake.descriptors[24] = 2,
        Kind::Unsupported,
        "command set 2",
    );
    check(
        IO,
        |fake| fake.fails = Some(("identify 3 2", Status::INVALID_FIELD)),
        Kind::Broken,
        "descr",
    );
    let cut = |fake: &mut Fake| {
        fake.descriptors.fill(0xFF); // descriptors of 255 bytes each: the last does not fit
    };
    check(IO, cut, Kind::Broken, "cut short");
}

#[test]
fn a_page_cut_short_is_an_error() {
    for bytes in [0, 1, 1023, 4095] {
        check(
            IO,
            |fake| fake.page_bytes = bytes,
            Kind::Broken,
            "less data",
        );
        check(
            Purpose::Discovery,
            |fake| fake.page_bytes = bytes,
            Kind::Broken,
            "less data",
        );
    }
}
