//! What works: the order of Linux, and what is taken from what a controller says.

use fabrix_proto::nvme::bringup::{Bringup, BringupErrorKind as Kind, Found, Purpose};
use fabrix_proto::nvme::spec::{CompletionEntry, Status};

use super::{CNTLID, Fake, IO, config, drive, run, success, time};

#[test]
fn a_good_controller_is_brought_up_in_the_order_of_linux() {
    let mut fake = Fake::new(IO);
    let facts = run(&mut fake, IO).expect("it is good");
    assert_eq!(
        fake.asked,
        [
            "connect 0 32",
            "cap",
            "vs",
            "cc",
            "csts",
            "csts",
            "csts",
            "identify 1 0",
            "identify 6 0",
            "queues 3",
            "identify 2 0",
            "identify 0 2",
            "identify 3 2",
        ]
    );
    assert_eq!(fake.cc, 0x46_0001);
    let controller = &facts.controller;
    assert_eq!(
        (controller.controller_id, controller.model.as_str()),
        (CNTLID, "disk")
    );
    assert_eq!(
        (controller.max_data_bytes, controller.in_capsule_bytes),
        (128 << 10, 8192)
    );
    assert_eq!(controller.keep_alive_unit_ms, Some(1000));
    assert!(controller.volatile_cache && controller.compare_and_write && !controller.ana);
    let Found::Io {
        queues: 2,
        nsids,
        namespace,
    } = &facts.found
    else {
        panic!("an I/O controller with two queues was expected: {facts:?}");
    };
    assert_eq!(nsids, &[1, 2, 5]);
    assert_eq!(
        (namespace.nsid, namespace.blocks, namespace.block_bytes),
        (2, 1 << 20, 4096)
    );
    assert_eq!((namespace.uuid, namespace.nguid), ([6; 16], [5; 16]));
}

#[test]
fn command_sets_and_page_size_follow_cap() {
    let mut fake = Fake::new(IO);
    fake.cap |= 1 << 43 | 3 << 48;
    let facts = run(&mut fake, IO).expect("it is good");
    assert_eq!(fake.cc, 0x46_0001 | 6 << 4 | 3 << 7);
    assert_eq!(
        facts.controller.max_data_bytes,
        1 << 20,
        "MDTS counts the smallest pages"
    );
}

#[test]
fn the_first_namespace_is_taken_when_none_is_named() {
    let purpose = Purpose::Io {
        nsid: None,
        queues: 1,
    };
    let facts = run(&mut Fake::new(purpose), purpose).expect("it is good");
    assert!(matches!(facts.found, Found::Io { queues: 1, namespace, .. } if namespace.nsid == 1));
}

#[test]
fn a_namespace_beyond_the_first_list_is_found() {
    let purpose = Purpose::Io {
        nsid: Some(5000),
        queues: 1,
    };
    let mut fake = Fake::new(purpose);
    fake.controller.namespaces.set(6000);
    fake.nsids = (1..=6000).collect();
    let facts = run(&mut fake, purpose).expect("it is good");
    assert!(fake.asked.contains(&"identify 2 4999".to_string()));
    let Found::Io {
        nsids, namespace, ..
    } = facts.found
    else {
        panic!("I/O was expected")
    };
    assert_eq!((nsids.len(), namespace.nsid), (1024, 5000));
}

#[test]
fn a_controller_before_1_3_is_not_asked_for_descriptors() {
    let mut fake = Fake::new(IO);
    fake.version = 0x0001_0201;
    fake.fails = Some(("identify 3 2", Status::INVALID_FIELD));
    assert!(run(&mut fake, IO).is_ok());
}

#[test]
fn limits_that_are_not_named_or_too_large_to_say_are_no_limits() {
    for mdts in [0, 20, 32, 52, 255] {
        let mut fake = Fake::new(IO);
        fake.controller.max_transfer = mdts;
        fake.controller.command_capsule_size.set(u32::MAX);
        fake.controller.namespaces.set(u32::MAX);
        let facts = run(&mut fake, IO).expect("it is good");
        assert_eq!(facts.controller.max_data_bytes, u32::MAX);
        assert_eq!(facts.controller.in_capsule_bytes, 1 << 20);
    }
}

#[test]
fn limits_of_commands_that_move_no_data_are_those_of_the_command_set() {
    let limits = |fake: &mut Fake| {
        let controller = run(fake, IO).expect("it is good").controller;
        (
            controller.max_write_zeroes_bytes,
            controller.max_dataset_blocks,
        )
    };
    let mut fake = Fake::new(IO);
    assert_eq!(limits(&mut fake), (u32::MAX, u32::MAX), "none is named");
    fake.limits.write_zeroes_limit = 13;
    fake.limits.dataset_range_blocks.set(1000);
    assert_eq!(limits(&mut fake), (32 << 20, 1000));
    fake.limits.dataset_blocks.set(999);
    assert_eq!(limits(&mut fake), (32 << 20, 999), "DMSL is less");
    fake.limits.dataset_blocks.set(u64::MAX);
    fake.cap |= 3 << 48;
    assert_eq!(limits(&mut fake), (256 << 20, 1000), "pages of 32 KiB");
    fake.fails = Some(("identify 6 0", Status::INVALID_FIELD));
    let refused = limits(&mut fake);
    assert_eq!(refused, (u32::MAX, u32::MAX), "a controller before 2.0");
}

#[test]
fn an_io_queue_connects_to_the_same_controller() {
    let facts = run(&mut Fake::new(IO), IO).expect("it is good");
    let queue = || Bringup::io_queue(config(IO), facts.controller.clone(), 3, 500);
    let mut fake = Fake::new(IO);
    let found = drive(&mut queue(), &mut fake).expect("it is good").found;
    assert_eq!(
        found,
        Found::Queue {
            queue_id: 3,
            entries: 128
        }
    );
    assert_eq!(fake.asked, ["connect 3 128"]);
    fake.connect = success(u64::from(CNTLID) + 1);
    let error = drive(&mut queue(), &mut fake).expect_err("another controller");
    assert_eq!(error.kind(), Kind::Broken);
    fake.connect = CompletionEntry::new(Status::CONNECT_INVALID_PARAMETERS, 42);
    let error = drive(&mut queue(), &mut fake).expect_err("refused");
    assert!(error.to_string().contains("queue id"), "{error}");
}

#[test]
fn a_target_that_times_its_commands_is_told_so_and_asked() {
    let mut fake = Fake::new(Purpose::Timing { seconds: 7 });
    let page = time(&mut fake, 7).expect("the page is ours");
    assert_eq!((page.seconds.get(), page.clock), (7, [9; 16]));
    assert!(fake.asked.ends_with(&[
        "timing page".into(),
        "timing 7".into(),
        "timing page".into()
    ]));
}

#[test]
fn the_feature_is_never_set_where_the_page_is_another_one_or_none() {
    let timing = Purpose::Timing { seconds: 7 };
    let mut fake = Fake::new(timing);
    fake.timing.signature[15] = b'2';
    assert_eq!(time(&mut fake, 7), None);
    assert_eq!(fake.asked.last().map(String::as_str), Some("timing page"));
    let mut fake = Fake::new(timing);
    fake.fails = Some(("timing page", Status::INVALID_LOG_PAGE));
    assert_eq!(time(&mut fake, 7), None);
    assert_eq!(fake.asked.last().map(String::as_str), Some("timing page"));
}
