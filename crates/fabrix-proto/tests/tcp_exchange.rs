//! Host and target joined by a wire in memory: whole commands, however the bytes are cut.

mod tcp_wire;

use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{HostEvent, HostTransfer};
use fabrix_proto::nvme::spec::{SglDescriptor, Status};
use fabrix_proto::nvme::tcp::host::HostLimits;
use fabrix_proto::nvme::tcp::pdu::InitializeRequest;
use fabrix_proto::nvme::tcp::target::TargetLimits;
use tcp_wire::*;
use zerocopy::IntoBytes;

fn limits(header_digest: bool, data_digest: bool) -> HostLimits {
    HostLimits {
        header_digest,
        data_digest,
        ..host_limits()
    }
}

/// Runs every kind of transfer and returns all that each side noticed.
fn exchange(host: HostLimits, target: TargetLimits, chunk: usize) -> (Vec<HostEvent>, Vec<String>) {
    let mut pair = Pair::new(host, target, chunk);
    pair.host.machine.set_in_capsule(4096);
    let written = pattern(20_000, 1);
    pair.host.memory[1][..20_000].copy_from_slice(&written);
    pair.host.memory[2][..4096].copy_from_slice(&written[..4096]);
    pair.command(0, 0x00, HostTransfer::None);
    pair.command(1, 0x01, HostTransfer::Write { bytes: 20_000 });
    pair.run();
    assert_eq!(pair.disk[..20_000], written);
    pair.command(3, 0x02, HostTransfer::Read { bytes: 20_000 });
    pair.command(4, 0x02, HostTransfer::Read { bytes: 512 });
    pair.run();
    assert_eq!(pair.host.memory[3][..20_000], written);
    assert_eq!(pair.host.memory[4][..512], written[..512]);
    pair.command(2, 0x01, HostTransfer::Write { bytes: 4096 });
    pair.run();
    assert_eq!(pair.disk[..4096], written[..4096]);
    assert_eq!(pair.host.machine.entry().status(), Status::SUCCESS);
    assert_eq!(pair.host.machine.slots_in_use(), 0);
    assert_eq!(pair.target.machine.slots_in_use(), 0);
    (pair.host.take_events(), pair.log)
}

fn completed(events: &[HostEvent]) -> Vec<(u16, u32)> {
    events
        .iter()
        .filter_map(|event| match event {
            HostEvent::Completed {
                slot,
                data_bytes,
                intact: true,
            } => Some((slot.0, *data_bytes)),
            _ => None,
        })
        .collect()
}

#[test]
fn all_transfers_work_with_and_without_digests() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let (events, _) = exchange(limits(header, data), target_limits(), 0);
        let expected = [(0, 0), (1, 20_000), (3, 20_000), (4, 512), (2, 4096)];
        assert_eq!(completed(&events), expected);
    }
}

#[test]
fn any_cut_of_the_stream_gives_the_same_events() {
    for digests in [false, true] {
        for r2t_bytes in [4096, u32::MAX] {
            let target = TargetLimits {
                max_r2t_bytes: r2t_bytes,
                ..target_limits()
            };
            let whole = exchange(limits(digests, digests), target, 0);
            for chunk in [
                1, 2, 3, 7, 8, 23, 24, 25, 71, 72, 73, 127, 128, 129, 1000, 4096, 8191,
            ] {
                assert_eq!(
                    exchange(limits(digests, digests), target, chunk),
                    whole,
                    "{chunk}"
                );
            }
        }
    }
}

/// One stream of the host's, cut in two at every byte.
#[test]
fn a_stream_cut_at_any_byte_is_the_same_stream() {
    let mut stream = InitializeRequest::new(0, BOTH, 1).as_bytes().to_vec();
    stream.extend(read_capsule(1, 512, BOTH));
    stream.extend(inline_capsule(2, &pattern(300, 1), BOTH));
    stream.extend(read_capsule(2, 512, BOTH));
    stream.extend(capsule(&entry(0x00, 3, SglDescriptor::transport(0)), BOTH));
    let mut whole = fresh_target(target_limits());
    whole.feed(&stream);
    for cut in 0..=stream.len() {
        let mut side = fresh_target(target_limits());
        side.feed(&stream[..cut]);
        side.feed(&stream[cut..]);
        assert_eq!(
            (&side.events, &side.sent),
            (&whole.events, &whole.sent),
            "cut at {cut}"
        );
        assert_eq!(side.violation, None);
    }
}

#[test]
fn a_connection_lost_at_any_byte_leaves_no_more_than_its_slots() {
    let mut stream = write_capsule(1, 600, NONE);
    stream.extend(inline_capsule(2, &[7; 100], NONE));
    for cut in 0..=stream.len() {
        let mut side = ready_target(target_limits(), NONE);
        side.feed(&stream[..cut]);
        let told = side.take_events().len();
        let arriving = usize::from((144..stream.len()).contains(&cut));
        assert_eq!(side.machine.slots_in_use(), told + arriving, "cut at {cut}");
    }
}

#[test]
fn many_commands_at_once_are_each_answered_once() {
    let mut pair = Pair::new(limits(false, false), target_limits(), 1000);
    pair.target.machine.set_flow_control(false);
    for round in 0..50_u16 {
        for slot in 0..8 {
            let transfer = match (slot + round) % 3 {
                0 => HostTransfer::Read { bytes: 4096 },
                1 => HostTransfer::Write { bytes: 4096 },
                _ => HostTransfer::Write { bytes: 12_288 },
            };
            let opcode = if matches!(transfer, HostTransfer::Read { .. }) {
                0x02
            } else {
                0x01
            };
            pair.command(slot, opcode, transfer);
        }
        pair.run();
        let mut slots: Vec<u16> = pair
            .host
            .take_events()
            .into_iter()
            .filter_map(|event| match event {
                HostEvent::Completed {
                    slot: Slot(slot), ..
                } => Some(slot),
                _ => None,
            })
            .collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
