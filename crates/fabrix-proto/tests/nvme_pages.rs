//! What Identify and Get Log Page say, byte for byte, and in pieces.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod nvme_common;

use std::sync::Arc;

use fabrix_proto::nvme::admin::{GetLogPage, Identify};
use fabrix_proto::nvme::identify::{Cns, Descriptor, Descriptors, ascii, fill_ascii};
use fabrix_proto::nvme::log_page::{DiscoveryEntry, ErrorRecord, HealthCounters, LogId};
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::{Hosts, Inventory, Listener, SecureChannel};
use nvme_common::{
    Bench, HOSTNQN, SUBNQN, failed, inventory, listener, namespace, nqn, subsystem, u16_at, u32_at,
    u64_at,
};
use proptest::prelude::*;
use zerocopy::FromBytes;

fn identify(cns: Cns, nsid: u32) -> SubmissionEntry {
    SubmissionEntry::identify(Identify::new(cns, nsid))
}

fn log(page: LogId, offset: u64, bytes: u64) -> SubmissionEntry {
    SubmissionEntry::get_log_page(GetLogPage {
        page,
        nsid: u32::MAX,
        offset,
        bytes,
        specific: 0,
        retain_event: true,
        command_set: 0,
    })
}

#[test]
fn the_controller_tells_the_truth_at_the_offsets_hosts_read() {
    let mut bench = Bench::enabled(&inventory(), SUBNQN, 5000);
    let id = bench.read(&identify(Cns::CONTROLLER, 0));
    assert_eq!(id.len(), 4096);
    assert_eq!(&id[4..24], b"S123                ");
    assert_eq!(&id[24..32], b"Fabrix  ");
    assert_eq!(&id[64..72], b"0.1     ");
    assert_eq!(id[76], 0b1010, "CMIC: several controllers, ANA");
    assert_eq!((id[342], id[343]), (10, 0x5F), "ANATT, ANACAP");
    assert_eq!(
        (u32_at(id, 344), u32_at(id, 348)),
        (16, 16),
        "ANAGRPMAX, NANAGRPID"
    );
    assert_eq!(id[77], 5, "MDTS: 2^5 pages are 128 KiB");
    assert_eq!(u16_at(id, 78), 1, "CNTLID");
    assert_eq!(u32_at(id, 80), 0x0001_0400, "VER");
    assert_eq!(u32_at(id, 92), 0x900, "OAES: namespace attributes, ANA");
    assert_eq!(
        u32_at(id, 96),
        0x41,
        "CTRATT: 128-bit host identifiers, TBKAS"
    );
    assert_eq!(id[111], 1, "CNTRLTYPE");
    assert_eq!(u16_at(id, 256), 0, "OACS");
    assert_eq!((id[258], id[259]), (3, 3), "ACL, AERL");
    assert_eq!(id[261], 0b110, "LPA: effects, extended data");
    assert_eq!(id[262], 63, "ELPE");
    assert_eq!(u16_at(id, 320), 10, "KAS: one second");
    assert_eq!((id[512], id[513]), (0x66, 0x44), "SQES, CQES");
    assert_eq!(u16_at(id, 514), 128, "MAXCMD");
    assert_eq!((u32_at(id, 516), u32_at(id, 540)), (1024, 1024), "NN, MNAN");
    assert_eq!(
        u16_at(id, 520),
        0b0111_1101,
        "ONCS: compare, DSM, zeroes, select, reservations, timestamp"
    );
    assert_eq!(u16_at(id, 522), 1, "FUSES");
    assert_eq!(
        id[525], 0b101,
        "VWC: a disk has a cache, no flush of all namespaces"
    );
    assert_eq!((u16_at(id, 526), u16_at(id, 528)), (0, 0), "AWUN, AWUPF");
    assert_eq!(
        u32_at(id, 536),
        1 | 1 << 20,
        "SGLS: supported, offsets into the capsule"
    );
    assert_eq!(&id[768..768 + SUBNQN.len()], SUBNQN.as_bytes());
    assert_eq!(id[768 + SUBNQN.len()..1024], [0; 256][SUBNQN.len()..]);
    assert_eq!(u32_at(id, 1792), (64 + 8192) / 16, "IOCCSZ");
    assert_eq!(u32_at(id, 1796), 1, "IORCSZ");
    assert_eq!(u16_at(id, 1800), 0, "ICDOFF");
    assert_eq!(
        (id[1802], id[1803], u16_at(id, 1804)),
        (0, 1, 1),
        "FCATT, MSDBD, OFCS"
    );
}

#[test]
fn a_discovery_controller_says_that_it_is_one() {
    let mut bench = Bench::enabled(&inventory(), DISCOVERY_NQN, 5000);
    let id = bench.read(&identify(Cns::CONTROLLER, 0));
    assert_eq!(id[111], 2);
    assert_eq!(u32_at(id, 92), 1 << 31, "OAES: discovery log");
    assert_eq!(id[261], 0b100);
    assert_eq!(
        &id[768..768 + DISCOVERY_NQN.len()],
        DISCOVERY_NQN.as_bytes()
    );
    assert_eq!(u32_at(id, 536) & 1, 1, "SGLS");
    assert_eq!(u32_at(id, 516), 0, "NN");
    let mut short = Bench::enabled(&inventory(), DISCOVERY_NQN, 0);
    assert_eq!(
        u32_at(short.read(&identify(Cns::CONTROLLER, 0)), 92),
        0,
        "no events without KATO"
    );
}

#[test]
fn a_namespace_tells_the_truth_at_the_offsets_hosts_read() {
    let mut bench = Bench::io();
    let id = bench.read(&identify(Cns::NAMESPACE, 2));
    assert_eq!(
        (u64_at(id, 0), u64_at(id, 8), u64_at(id, 16)),
        (1000, 1000, 1000)
    );
    assert_eq!(
        id[24], 0b1_0010,
        "NSFEAT: atomic units and preferences are valid"
    );
    assert_eq!(id[25..30], [0; 5], "one format, no metadata, no protection");
    assert_eq!(id[30], 1, "NMIC: shared");
    assert_eq!(
        id[33], 0b1001,
        "DLFEAT: zeroes, and Write Zeroes deallocates"
    );
    assert_eq!(
        (u16_at(id, 34), u16_at(id, 36), u16_at(id, 38)),
        (0, 0, 255),
        "NAWUN, NAWUPF, NACWU"
    );
    assert_eq!(u16_at(id, 46), 128, "NOIOB");
    assert_eq!((u16_at(id, 64), u16_at(id, 66)), (1, 0), "NPWG, NPWA");
    assert_eq!((u16_at(id, 68), u16_at(id, 70)), (1, 0), "NPDG, NPDA");
    assert_eq!(u16_at(id, 72), 63, "NOWS");
    assert_eq!(u32_at(id, 92), 1, "ANAGRPID");
    assert_eq!(id[99], 0, "NSATTR");
    assert_eq!(id[104..120], namespace(2).nguid);
    assert_eq!(id[120..128], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(id[128..136], [0, 0, 12, 0, 0, 0, 0, 0], "LBAF0: 4096 bytes");
    let id = bench.read(&identify(Cns::NAMESPACE, 5));
    assert_eq!(
        (id[99], id[33], id[130]),
        (1, 0, 9),
        "read-only, no deallocation, 512 bytes"
    );
}

#[test]
fn valid_ids_without_a_namespace_give_zeroes_and_others_an_error() {
    let mut bench = Bench::io();
    for cns in [
        Cns::NAMESPACE,
        Cns::COMMAND_SET_NAMESPACE,
        Cns::INDEPENDENT_NAMESPACE,
    ] {
        assert_eq!(bench.read(&identify(cns, 3)), [0; 4096]);
        for nsid in [0, 1025, u32::MAX] {
            assert_eq!(
                bench.run(&identify(cns, nsid)),
                failed(Status::INVALID_NAMESPACE)
            );
        }
    }
    assert_eq!(
        bench.run(&identify(Cns::DESCRIPTORS, 3)),
        failed(Status::INVALID_NAMESPACE)
    );
}

#[test]
fn lists_are_ascending_and_start_after_the_id_given() {
    let mut bench = Bench::io();
    for cns in [Cns::ACTIVE_NAMESPACES, Cns::COMMAND_SET_ACTIVE_NAMESPACES] {
        let list = bench.read(&identify(cns, 0));
        assert_eq!(list[..16], [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bench.read(&identify(cns, 2))[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bench.read(&identify(cns, 5)), [0; 4096]);
        for nsid in [u32::MAX - 1, u32::MAX] {
            assert_eq!(
                bench.run(&identify(cns, nsid)),
                failed(Status::INVALID_NAMESPACE)
            );
        }
    }
}

#[test]
fn descriptors_hold_every_identifier() {
    let mut bench = Bench::io();
    let page = bench.read(&identify(Cns::DESCRIPTORS, 2));
    assert_eq!(page[..4], [1, 8, 0, 0], "EUI64");
    assert_eq!(page[12..16], [2, 16, 0, 0], "NGUID");
    assert_eq!(page[32..36], [3, 16, 0, 0], "UUID");
    assert_eq!(page[52..57], [4, 1, 0, 0, 0], "CSI");
    assert_eq!(page[57..61], [0; 4]);
    let found: Result<Vec<_>, _> = Descriptors::new(page).collect();
    let expected = [
        Descriptor::Eui64([1, 2, 3, 4, 5, 6, 7, 8]),
        Descriptor::Nguid(namespace(2).nguid),
        Descriptor::Uuid(namespace(2).uuid),
        Descriptor::Csi(0),
    ];
    assert_eq!(found.unwrap(), expected);
}

#[test]
fn a_descriptor_list_from_a_hostile_peer_ends() {
    let found = |page: &[u8]| Descriptors::new(page).collect::<Vec<_>>().len();
    assert_eq!(found(&[]), 0);
    assert_eq!(
        found(&[1, 0, 0, 0, 2, 16]),
        0,
        "a length of zero ends the list"
    );
    assert_eq!(
        found(&[9, 1, 0, 0, 7, 4, 1, 0, 0, 0]),
        1,
        "an unknown type is skipped"
    );
    let cut = Descriptors::new(&[3, 16, 0, 0, 1])
        .next()
        .unwrap()
        .unwrap_err();
    assert_eq!((cut.offset, cut.wanted), (4, 16));
}

#[test]
fn answers_the_forms_that_belong_to_the_command_set() {
    let mut bench = Bench::io();
    let nvm = bench.read(&identify(Cns::COMMAND_SET_CONTROLLER, 0));
    assert_eq!(
        nvm[..8],
        [0, 8, 0, 0, 0, 0, 0, 0],
        "WZSL: 2^8 pages are 1 MiB"
    );
    let independent = bench.read(&identify(Cns::INDEPENDENT_NAMESPACE, 5));
    assert_eq!(
        independent[..16],
        [0x12, 1, 0xFE, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
    );
    assert_eq!(
        bench.read(&identify(Cns::COMMAND_SET_NAMESPACE, 1)),
        [0; 4096]
    );
    let any = Identify {
        controller_id: 0xFFFF,
        ..Identify::new(Cns::COMMAND_SETS, 0)
    };
    assert_eq!(u64_at(bench.read(&SubmissionEntry::identify(any)), 0), 1);
    let other = Identify {
        controller_id: 2,
        ..any
    };
    assert_eq!(
        bench.run(&SubmissionEntry::identify(other)),
        failed(Status::INVALID_FIELD)
    );
    for cns in [Cns::COMMAND_SET_NAMESPACE, Cns::COMMAND_SET_CONTROLLER] {
        let zoned = Identify {
            command_set: 2,
            ..Identify::new(cns, 1)
        };
        assert_eq!(
            bench.run(&SubmissionEntry::identify(zoned)),
            failed(Status::INVALID_FIELD)
        );
    }
    for cns in [0x04, 0x09, 0x10, 0x13, 0x16, 0xFF] {
        assert_eq!(
            bench.run(&identify(Cns(cns), 1)),
            failed(Status::INVALID_FIELD)
        );
    }
}

#[test]
fn old_bytes_of_the_page_never_reach_the_host() {
    let mut bench = Bench::io();
    for entry in [
        identify(Cns::CONTROLLER, 0),
        identify(Cns::NAMESPACE, 1),
        identify(Cns::DESCRIPTORS, 1),
        log(LogId::HEALTH, 0, 512),
        log(LogId::HEALTH, 508, 4096),
        log(LogId::ERROR, 0, 4096),
        log(LogId::COMMAND_EFFECTS, 0, 4096),
    ] {
        bench.page.fill(0xEE);
        assert!(!bench.read(&entry).contains(&0xEE), "{entry:?}");
    }
}

#[test]
fn lists_the_pages_it_supports() {
    let mut bench = Bench::io();
    let page = bench.read(&log(LogId::SUPPORTED, 0, 1024)).to_vec();
    let supported: Vec<_> = (0..256_usize)
        .filter(|id| u32_at(&page, id * 4) == 1)
        .collect();
    assert_eq!(supported, [0, 1, 2, 3, 4, 5, 0x0C, 0x1E, 0x80, 0xC0]);
    for (id, dword) in (0..=255).zip(page.chunks(4)) {
        let refused = bench.run(&log(LogId(id), 0, 4)) == failed(Status::INVALID_LOG_PAGE);
        assert_eq!(refused, dword[0] == 0, "page {id:#x}");
    }
}

#[test]
fn the_health_page_counts_in_the_units_of_the_standard() {
    let mut bench = Bench::io();
    bench.health = HealthCounters {
        read_bytes: 512 * 1000 * 3,
        written_bytes: 512 * 1000 + 1,
        read_commands: 9,
        write_commands: u64::MAX,
        power_on_hours: 5,
        media_errors: 2,
        ..HealthCounters::default()
    };
    let page = bench.read(&log(LogId::HEALTH, 0, 512));
    assert_eq!((page[0], page[3], u16_at(page, 1)), (0, 100, 0));
    assert_eq!(
        (u64_at(page, 32), u64_at(page, 48)),
        (3, 2),
        "data units, rounded up"
    );
    assert_eq!((u64_at(page, 64), u64_at(page, 80)), (9, u64::MAX));
    assert_eq!(
        (u64_at(page, 128), u64_at(page, 160), u64_at(page, 176)),
        (5, 2, 0)
    );
    let mut of_namespace = log(LogId::HEALTH, 0, 512);
    of_namespace.nsid = 1.into();
    assert_eq!(bench.run(&of_namespace), failed(Status::INVALID_FIELD));
}

#[test]
fn the_error_page_shows_the_newest_first_and_forgets_the_oldest() {
    let mut bench = Bench::io();
    for number in 1..=70_u16 {
        bench.controller.record_error(&ErrorRecord {
            queue_id: 1,
            command_id: number,
            status: Status::UNRECOVERED_READ_ERROR,
            lba: 0x1234,
            nsid: 2,
        });
    }
    let page = bench.read(&log(LogId::ERROR, 0, 4096)).to_vec();
    assert_eq!(
        page[..16],
        [70, 0, 0, 0, 0, 0, 0, 0, 1, 0, 70, 0, 0x02, 0x85, 0xFF, 0xFF]
    );
    assert_eq!(
        page[16..30],
        [0x34, 0x12, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3]
    );
    assert_eq!(u64_at(&page, 63 * 64), 7);
    assert_eq!(bench.read(&log(LogId::ERROR, 64, 8)), 69_u64.to_le_bytes());
    assert_eq!(u64_at(bench.read(&log(LogId::HEALTH, 176, 8)), 0), 70);
}

#[test]
fn the_effects_page_is_truthful() {
    let mut bench = Bench::io();
    let page = bench.read(&log(LogId::COMMAND_EFFECTS, 0, 4096)).to_vec();
    let set = |base: usize| -> Vec<_> {
        (0..256)
            .map(|op| (op, u32_at(&page, base + op * 4)))
            .filter(|(_, e)| *e != 0)
            .collect()
    };
    let admin = [
        (2, 1),
        (6, 1),
        (8, 1),
        (9, 1),
        (10, 1),
        (12, 1),
        (0x18, 1),
        (0x38, 1),
        (0x7F, 1),
    ];
    assert_eq!(set(0), admin);
    assert_eq!(
        set(1024),
        [
            (0, 1),
            (1, 3),
            (2, 1),
            (5, 1),
            (8, 3),
            (9, 3),
            (0x0D, 1),
            (0x0E, 1),
            (0x11, 1),
            (0x15, 1),
            (0x7F, 1)
        ]
    );
    let mut zoned = log(LogId::COMMAND_EFFECTS, 0, 4096);
    zoned.cdw14 = (2 << 24).into();
    assert_eq!(bench.run(&zoned), failed(Status::INVALID_FIELD));
}

#[test]
fn the_firmware_page_names_the_active_slot() {
    let mut bench = Bench::io();
    let page = bench.read(&log(LogId::FIRMWARE_SLOT, 0, 512));
    assert_eq!(page[..16], *b"\x01\0\0\0\0\0\0\x000.1     ");
}

#[test]
fn refuses_offsets_past_the_page_and_between_dwords() {
    let mut bench = Bench::io();
    assert_eq!(
        bench.run(&log(LogId::HEALTH, 516, 4)),
        failed(Status::INVALID_FIELD)
    );
    assert_eq!(
        bench.run(&log(LogId::HEALTH, u64::MAX - 3, 4)),
        failed(Status::INVALID_FIELD)
    );
    for offset in [1, 2, 3] {
        assert_eq!(
            bench.run(&log(LogId::HEALTH, offset, 4)),
            failed(Status::INVALID_FIELD)
        );
    }
    assert_eq!(
        bench.read(&log(LogId::HEALTH, 512, 8)),
        [0; 8],
        "the end reads as zeroes"
    );
    assert_eq!(
        bench.run(&log(LogId(0x0D), 0, 16)),
        failed(Status::INVALID_LOG_PAGE)
    );
    assert_eq!(
        bench.run(&log(LogId::DISCOVERY, 0, 16)),
        failed(Status::INVALID_LOG_PAGE)
    );
    for bit in [0, 6, 7, 22, 23] {
        let mut entry = log(LogId::HEALTH, 0, 4);
        entry.cdw14 = (1 << bit).into();
        assert_eq!(
            bench.run(&entry),
            failed(Status::INVALID_FIELD),
            "dword 14 bit {bit}"
        );
    }
}

/// Two subsystems, of which the host may see the first and the third; two places and a referral.
fn discovery_bench() -> Bench {
    let other = Hosts::Listed(vec![nqn("nqn.2024-01.org.example:other")]);
    let ours = Hosts::Listed(vec![nqn(HOSTNQN)]);
    let subsystems = vec![
        subsystem("nqn.2024-01.org.example:a", vec![namespace(1)], Hosts::Any),
        subsystem("nqn.2024-01.org.example:b", vec![namespace(1)], other),
        subsystem("nqn.2024-01.org.example:c", vec![namespace(1)], ours),
    ];
    let secure = Listener {
        secure_channel: SecureChannel::Required,
        ..listener(2, "[::]:4420")
    };
    let elsewhere = Listener {
        referral: true,
        ..listener(3, "192.0.2.9:8009")
    };
    let listeners = vec![listener(1, "192.0.2.1:4420"), secure, elsewhere];
    let inventory = Arc::new(Inventory::new(subsystems, listeners, 0x1122).unwrap());
    let mut bench = Bench::enabled(&inventory, DISCOVERY_NQN, 0);
    bench.view = bench.view.reached_at("[2001:db8::1]:8009".parse().unwrap());
    bench
}

#[test]
fn the_discovery_page_shows_what_the_host_may_reach() {
    let mut bench = discovery_bench();
    let page = bench.read(&log(LogId::DISCOVERY, 0, 7 * 1024)).to_vec();
    assert_eq!(
        (u64_at(&page, 0), u64_at(&page, 8), u16_at(&page, 16)),
        (0x1122, 5, 0)
    );
    assert_eq!(page[6 * 1024..], [0; 1024]);
    let entries: Vec<_> = (1..=5)
        .map(|index| DiscoveryEntry::read_from_bytes(&page[index * 1024..][..1024]).unwrap())
        .collect();
    let names: Vec<_> = entries
        .iter()
        .map(|entry| entry.nqn().unwrap().to_string())
        .collect();
    let expected = [
        "nqn.2024-01.org.example:a",
        "nqn.2024-01.org.example:a",
        "nqn.2024-01.org.example:c",
        "nqn.2024-01.org.example:c",
        DISCOVERY_NQN,
    ];
    assert_eq!(names, expected);
    assert_eq!(
        page[1024..1036],
        [3, 1, 2, 0b100, 1, 0, 0xFF, 0xFF, 32, 0, 0, 0]
    );
    assert_eq!(&page[1024 + 32..][..5], b"4420\0");
    assert_eq!(&page[1024 + 512..][..10], b"192.0.2.1\0");
    assert_eq!(page[1024 + 768], 0, "no TLS");
    assert_eq!(
        page[2048..2052],
        [3, 2, 2, 0b101],
        "reached by IPv6, a secure channel required"
    );
    assert_eq!(&page[2048 + 512..][..12], b"2001:db8::1\0");
    assert_eq!(page[2048 + 768], 2, "TLS 1.3");
    assert_eq!(
        (page[5 * 1024 + 2], entries[4].service_text()),
        (1, "8009"),
        "the referral"
    );
}

#[test]
fn the_discovery_page_is_never_longer_than_its_records() {
    let mut bench = discovery_bench();
    assert_eq!(bench.read(&log(LogId::DISCOVERY, 6 * 1024, 16)), [0; 16]);
    let past = bench.run(&log(LogId::DISCOVERY, 6 * 1024 + 4, 16));
    assert_eq!(past, failed(Status::INVALID_FIELD));
}

#[test]
fn ascii_fields_are_padded_cut_and_cleaned() {
    let mut field = [0; 6];
    fill_ascii(&mut field, "ab\tdefgh");
    assert_eq!(&field, b"ab?def");
    fill_ascii(&mut field, "ab");
    assert_eq!((&field, ascii(&field)), (b"ab    ", "ab"));
    assert_eq!(ascii(b"a\x1Bb"), "");
}

proptest! {
    /// Whatever pieces a host reads, they are the pieces of the whole.
    #[test]
    fn any_piece_of_the_discovery_page_is_a_piece_of_the_whole(offset in 0_u64..1700, dwords in 1_u64..1500) {
        let mut bench = discovery_bench();
        let mut whole = bench.read(&log(LogId::DISCOVERY, 0, 6 * 1024)).to_vec();
        whole.resize(16 * 1024, 0);
        let offset = offset.min(1536) * 4;
        let piece = bench.read(&log(LogId::DISCOVERY, offset, dwords * 4));
        let start = usize::try_from(offset).unwrap();
        prop_assert_eq!(piece, &whole[start..start + piece.len()]);
    }
}
