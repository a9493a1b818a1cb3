//! Connect, the properties and the inventory: golden bytes, and an exact error for everything a
//! host can get wrong.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod nvme_common;

use std::sync::Arc;

use fabrix_proto::nvme::fabrics::{
    Connect, ConnectData, ConnectRefusal, FabricsCommand, Property, printable_names,
};
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::{
    Hosts, Inventory, InventoryError, NamespaceFault, Refused, Subsystem, SubsystemFault,
};
use nvme_common::{Bench, HOSTNQN, SUBNQN, connect, failed, inventory, namespace, nqn, subsystem};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

/// The entry and data of Linux's admin Connect, written by hand.
fn linux_admin_connect() -> ([u8; 64], [u8; 1024]) {
    let mut entry = [0; 64];
    (entry[0], entry[1], entry[4]) = (0x7F, 0x40, 0x01);
    entry[32..34].copy_from_slice(&[0x00, 0x04]); // SGL length 1024
    entry[39] = 0x01; // in the capsule
    entry[44] = 31; // SQSIZE, zero-based
    entry[46] = 0x04; // CATTR: no SQ flow control
    entry[48..50].copy_from_slice(&[0x88, 0x13]); // KATO 5000 ms
    let mut data = [0; 1024];
    data[..16].fill(7);
    data[16..18].fill(0xFF);
    data[256..256 + SUBNQN.len()].copy_from_slice(SUBNQN.as_bytes());
    data[512..512 + HOSTNQN.len()].copy_from_slice(HOSTNQN.as_bytes());
    (entry, data)
}

/// Linux's Connect with some bytes of the entry and of the data changed, and how it is refused.
fn refusal(entry_changes: &[(usize, u8)], data_changes: &[(usize, u8)]) -> (Status, u32) {
    let (mut entry, mut data) = linux_admin_connect();
    entry_changes
        .iter()
        .for_each(|(at, value)| entry[*at] = *value);
    data_changes
        .iter()
        .for_each(|(at, value)| data[*at] = *value);
    let refusal = Connect::parse(&SubmissionEntry::from_array(entry), &data, 128).unwrap_err();
    (refusal.status, refusal.result)
}

const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS;

#[test]
fn understands_the_connect_of_linux() {
    let (entry, data) = linux_admin_connect();
    let found = Connect::parse(&SubmissionEntry::from_array(entry), &data, 128).unwrap();
    let expected = Connect {
        disable_sq_flow_control: true,
        ..connect(SUBNQN, 0, 5000)
    };
    assert_eq!(found, expected);
    let (mut built, built_data) = expected.to_wire();
    built.sgl = SubmissionEntry::from_array(entry).sgl;
    assert_eq!(built.to_array(), entry);
    assert_eq!(built_data.as_bytes(), data);
}

#[test]
fn takes_the_static_model_of_windows() {
    let (entry, mut data) = linux_admin_connect();
    data[16] = 0xFE;
    let found = Connect::parse(&SubmissionEntry::from_array(entry), &data, 128).unwrap();
    assert_eq!(found.controller_id, 0xFFFE);
}

#[test]
fn refuses_other_controller_ids_and_says_where_they_stand() {
    assert_eq!(refusal(&[], &[(16, 1), (17, 0)]), (INVALID, 0x1_0010));
    assert_eq!(refusal(&[], &[(16, 0xFD)]), (INVALID, 0x1_0010));
    // An I/O queue names a controller, not a model.
    assert_eq!(refusal(&[(42, 1)], &[]), (INVALID, 0x1_0010));
}

#[test]
fn refuses_record_formats_and_queue_sizes() {
    assert_eq!(
        refusal(&[(40, 1)], &[]),
        (Status::CONNECT_INCOMPATIBLE_FORMAT, 0)
    );
    assert_eq!(refusal(&[(44, 0)], &[]), (INVALID, 44));
    assert_eq!(refusal(&[(44, 128)], &[]), (INVALID, 44));
    assert_eq!(refusal(&[(44, 0xFF), (45, 0xFF)], &[]), (INVALID, 44));
    let (mut entry, data) = linux_admin_connect();
    entry[44] = 127;
    assert!(Connect::parse(&SubmissionEntry::from_array(entry), &data, 128).is_ok());
}

#[test]
fn refuses_names_that_are_not_names() {
    assert_eq!(refusal(&[], &[(256, 0)]), (INVALID, 0x1_0100));
    assert_eq!(refusal(&[], &[(257, 0x1B)]), (INVALID, 0x1_0100));
    assert_eq!(refusal(&[], &[(512, 0)]), (INVALID, 0x1_0200));
    assert_eq!(refusal(&[], &[(512, 0xFF)]), (INVALID, 0x1_0200));
    let endless: Vec<_> = (512..768).map(|at| (at, b'a')).collect();
    assert_eq!(refusal(&[], &endless), (INVALID, 0x1_0200));
}

#[test]
fn refuses_a_host_without_an_id_or_a_qualified_name_and_says_where_it_stands() {
    let no_id: Vec<_> = (0..16).map(|at| (at, 0)).collect();
    assert_eq!(refusal(&[], &no_id), (INVALID, 0x1_0000));
    assert_eq!(refusal(&[], &[(512, b'i')]), (INVALID, 0x1_0200));
    assert_eq!(refusal(&[], &[(516, b'x')]), (INVALID, 0x1_0200));
    let (mut short, name) = (vec![(517, 0)], b"host1");
    short.extend((512..).zip(name.iter().copied()));
    assert_eq!(refusal(&[], &short), (INVALID, 0x1_0200));
    // An I/O queue's Connect says who asks, too.
    let io: Vec<_> = [(16, 1), (17, 0)].into_iter().chain(no_id).collect();
    assert_eq!(refusal(&[(42, 1)], &io), (INVALID, 0x1_0000));
}

#[test]
fn refuses_data_of_another_length() {
    let (entry, data) = linux_admin_connect();
    for bytes in [0, 1, 1023] {
        let refusal = Connect::parse(&SubmissionEntry::from_array(entry), &data[..bytes], 128);
        assert_eq!(refusal.unwrap_err().status, Status::DATA_SGL_LENGTH_INVALID);
    }
}

#[test]
fn the_answers_have_the_bytes_of_the_standard() {
    let mut accepted = [0; 16];
    accepted[0] = 0x34;
    assert_eq!(Connect::accepted(0x34).to_array(), accepted);
    let refused = ConnectRefusal::controller_id("no").completion().to_array();
    let golden = [0x10, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x04, 0x83];
    assert_eq!(refused, golden);
    assert_eq!(CompletionEntry::from_array(golden).status(), INVALID);
}

#[test]
fn property_commands_have_the_bytes_of_the_standard() {
    let mut golden = [0; 64];
    (golden[0], golden[1], golden[4], golden[39]) = (0x7F, 0x40, 0x04, 0x5A);
    golden[40] = 1; // 8 bytes
    assert_eq!(
        SubmissionEntry::property_get(Property::CAP).to_array(),
        golden
    );
    (golden[4], golden[40], golden[44]) = (0x00, 0, 0x14);
    golden[48..52].copy_from_slice(&[1, 0, 0x46, 0]);
    let entry = SubmissionEntry::property_set(Property::CC, 0x0046_0001);
    assert_eq!(entry.to_array(), golden);
    let set = FabricsCommand::PropertySet {
        property: Property::CC,
        bytes: 4,
        value: 0x0046_0001,
    };
    assert_eq!(FabricsCommand::parse(&entry), Ok(set));
    golden[40] = 2;
    let entry = SubmissionEntry::from_array(golden);
    assert_eq!(FabricsCommand::parse(&entry), Err(Status::INVALID_FIELD));
}

#[test]
fn knows_disconnect_and_no_authentication() {
    assert_eq!(
        FabricsCommand::parse(&SubmissionEntry::disconnect()),
        Ok(FabricsCommand::Disconnect)
    );
    for kind in [0x02, 0x03, 0x05, 0x06, 0x07, 0x09, 0xFF] {
        let mut bytes = SubmissionEntry::disconnect().to_array();
        bytes[4] = kind;
        let parsed = FabricsCommand::parse(&SubmissionEntry::from_array(bytes));
        assert_eq!(parsed, Err(Status::INVALID_OPCODE));
    }
    let mut bench = Bench::io();
    assert_eq!(
        bench.run(&SubmissionEntry::disconnect()),
        failed(Status::INVALID_QUEUE_TYPE)
    );
}

#[test]
fn names_of_strangers_are_safe_to_log() {
    let (_, mut data) = linux_admin_connect();
    data[512..516].copy_from_slice(b"\x1B[2J");
    let data = ConnectData::ref_from_bytes(&data).unwrap();
    let (subsystem, host) = printable_names(data);
    assert_eq!(subsystem.to_string(), SUBNQN);
    assert!(host.to_string().starts_with("\\u{1b}[2J"));
}

#[test]
fn nothing_is_resolved_for_a_host_that_is_not_allowed() {
    let listed = Hosts::Listed(vec![nqn(HOSTNQN)]);
    let subsystems = vec![subsystem(SUBNQN, vec![namespace(1)], listed)];
    let inventory = Arc::new(Inventory::new(subsystems, vec![], 1).unwrap());
    let other = nqn("nqn.2024-01.org.example:other");
    let refused = inventory.authorize(&nqn(SUBNQN), &other).unwrap_err();
    assert_eq!(refused, Refused::HostNotAllowed);
    assert_eq!(
        ConnectRefusal::from(refused).status,
        Status::CONNECT_INVALID_HOST
    );
    let unknown = inventory
        .authorize(&nqn("nqn.2024-01.org.example:no"), &other)
        .unwrap_err();
    let refusal = ConnectRefusal::from(unknown);
    assert_eq!((refusal.status, refusal.result), (INVALID, 0x1_0100));
    assert!(
        inventory
            .authorize(&nqn(SUBNQN), &nqn(HOSTNQN))
            .unwrap()
            .namespace(1)
            .is_some()
    );
    let discovery = inventory
        .authorize(&nqn(DISCOVERY_NQN), &nqn(HOSTNQN))
        .unwrap();
    assert!(discovery.namespace(1).is_none());
}

#[test]
fn a_view_ends_when_its_host_is_no_longer_allowed() {
    let before = inventory();
    let view = before.authorize(&nqn(SUBNQN), &nqn(HOSTNQN)).unwrap();
    let with_hosts = |hosts| {
        let subsystems = vec![subsystem(SUBNQN, vec![namespace(3)], hosts)];
        Arc::new(Inventory::new(subsystems, vec![], 8).unwrap())
    };
    let after = view.refresh(&with_hosts(Hosts::Any)).unwrap();
    assert!(after.namespace(1).is_none() && after.namespace(3).is_some());
    assert_eq!(
        view.refresh(&with_hosts(Hosts::Listed(vec![])))
            .unwrap_err(),
        Refused::HostNotAllowed
    );
    assert!(
        view.namespace(1).is_some(),
        "the old view keeps its inventory"
    );
}

#[test]
fn an_inventory_refuses_what_hosts_could_not_use() {
    let fault = |change: &dyn Fn(&mut Subsystem)| {
        let mut wrong = subsystem(SUBNQN, vec![namespace(1)], Hosts::Any);
        change(&mut wrong);
        Inventory::new(vec![wrong], vec![], 1).unwrap_err()
    };
    let on_namespace = |fault| InventoryError::Namespace(nqn(SUBNQN), 1, fault);
    let on_subsystem = |fault| InventoryError::Subsystem(nqn(SUBNQN), fault);
    assert_eq!(
        fault(&|s| s.namespaces[0].block_bytes = 520),
        on_namespace(NamespaceFault::BlockBytes)
    );
    for nsid in [0, 1025, u32::MAX] {
        assert_eq!(
            fault(&|s| s.namespaces[0].nsid = nsid),
            InventoryError::Namespace(nqn(SUBNQN), nsid, NamespaceFault::Nsid),
            "hosts ignore what is above NN"
        );
    }
    assert_eq!(
        fault(&|s| s.namespaces[0].blocks = 0),
        on_namespace(NamespaceFault::Size)
    );
    assert_eq!(
        fault(&|s| s.namespaces[0].blocks = u64::MAX),
        on_namespace(NamespaceFault::Size)
    );
    assert_eq!(
        fault(&|s| s.namespaces[0].nguid = [0; 16]),
        on_namespace(NamespaceFault::Identifier)
    );
    assert_eq!(
        fault(&|s| s.namespaces[0].atomic_write_blocks = 0),
        on_namespace(NamespaceFault::Counts)
    );
    assert_eq!(
        fault(&|s| s.namespaces.push(namespace(1))),
        on_namespace(NamespaceFault::Duplicate)
    );
    assert_eq!(
        fault(&|s| s.serial = "x".repeat(21)),
        on_subsystem(SubsystemFault::Text)
    );
    assert_eq!(
        fault(&|s| s.controller_ids = 0..=5),
        on_subsystem(SubsystemFault::ControllerIds)
    );
    assert_eq!(
        fault(&|s| s.max_queue_entries = 31),
        on_subsystem(SubsystemFault::Queues)
    );
    let sentence = fault(&|s| s.namespaces[0].block_bytes = 520).to_string();
    let expected = "namespace 1: the block size is not a power of two from 512 to 65536";
    assert_eq!(sentence, format!("subsystem {SUBNQN}, {expected}"));
    let twice = vec![
        subsystem(SUBNQN, vec![], Hosts::Any),
        subsystem(SUBNQN, vec![], Hosts::Any),
    ];
    let error = Inventory::new(twice, vec![], 1).unwrap_err();
    assert_eq!(error, on_subsystem(SubsystemFault::Duplicate));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        entry in proptest::collection::vec(any::<u8>(), 64),
        data in proptest::collection::vec(any::<u8>(), 1024),
    ) {
        let entry: [u8; 64] = entry.try_into().unwrap();
        let entry = SubmissionEntry::from_array(entry);
        let _ = FabricsCommand::parse(&entry);
        let _ = Connect::parse(&entry, &data, 128);
    }

    /// What a host builds is what we understand, or it is refused for the one thing that is wrong
    /// with it.
    #[test]
    fn a_connect_is_understood_or_refused_for_its_reason(
        queue_id in 0_u16..4,
        queue_entries in 1_u32..140,
        keep_alive_ms in any::<u32>(),
        disable_sq_flow_control in any::<bool>(),
        controller_id in prop_oneof![Just(0xFFFF_u16), Just(0xFFFE), 0xFFEE_u16..0xFFF2, 0_u16..3],
        name in "nqn\\.[a-z0-9:.\u{e9}-]{1,60}",
    ) {
        let built = Connect {
            queue_id,
            queue_entries,
            keep_alive_ms,
            disable_sq_flow_control,
            controller_id,
            subsystem: nqn(&name),
            ..connect(SUBNQN, 0, 0)
        };
        let (entry, data) = built.to_wire();
        let size_fits = (2..=128).contains(&queue_entries);
        let id_fits = if queue_id == 0 { controller_id >= 0xFFFE } else { controller_id <= 0xFFEF };
        let found = Connect::parse(&entry, data.as_bytes(), 128).map_err(|refusal| refusal.result);
        let expected = match (size_fits, id_fits) {
            (false, _) => Err(44),
            (true, false) => Err(0x1_0010),
            (true, true) => Ok(built),
        };
        prop_assert_eq!(found, expected);
    }
}
