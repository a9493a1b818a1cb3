//! Notices to NVMe hosts of reservations that others change: the event, the log page, and the mask.

use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::reservation::AcquireAction;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::scsi::reservation::Kind;
use fabrix_rt::Engine;

use crate::common::Stage;
use crate::common::host::Data;
use crate::on_both_engines;
use crate::peers::{NvmeHost, Scsi};

on_both_engines!(
    a_host_is_told_what_was_taken_from_it,
    notifications_wait_in_order_and_can_be_masked,
);

/// Type 6, reservation log page available, log page 80h.
const EVENT: u64 = 0x0080_0006;
const PREEMPT: AcquireAction = AcquireAction::Preempt { abort: false };

fn a_host_is_told_what_was_taken_from_it(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = NvmeHost::new(&stage, 1);
    let mut initiator = Scsi::new(&stage, 1);
    host.register(1);
    initiator.register(2);
    assert_eq!(host.notification().kind, 0, "nothing yet");
    let event = host
        .admin
        .submit(SubmissionEntry::async_event_request(), Data::None);
    assert_eq!(initiator.reserve_out(4, 2, 1, Kind::WriteExclusive), 0);
    let answer = host.admin.finish(event);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, EVENT));
    let page = host.notification();
    assert_eq!((page.count.get(), page.kind, page.more), (1, 1, 0));
    assert_eq!(page.nsid.get(), 1);
    assert_eq!(host.notification().kind, 0, "read once");
}

fn notifications_wait_in_order_and_can_be_masked(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut host, mut other) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    let kind = Kind::WriteExclusiveRegistrants;
    host.register(1);
    other.register(2);
    let mut release = |host: &mut NvmeHost| {
        assert_eq!(
            other.acquire(2, 0, AcquireAction::Acquire, kind),
            Status::SUCCESS
        );
        assert_eq!(other.release(2, Some(kind)), Status::SUCCESS);
        // The wake-up has been heard when the admin queue answers.
        host.feature(FeatureId::RESERVATION_MASK)
    };
    release(&mut host);
    let mask = FeatureId::RESERVATION_MASK;
    assert_eq!(host.set_feature(mask, 1, 0b0100), Status::SUCCESS);
    assert_eq!(release(&mut host), 0b0100, "masked");
    assert_eq!(host.set_feature(mask, u32::MAX, 0), Status::SUCCESS);
    assert_eq!(host.set_feature(mask, 1, 1), Status::INVALID_FIELD);
    assert_eq!(host.set_feature(mask, 9, 0), Status::INVALID_NAMESPACE);
    assert_eq!(other.acquire(2, 1, PREEMPT, kind), Status::SUCCESS);
    host.feature(mask);
    let pages = [host.notification(), host.notification()];
    assert_eq!(pages.map(|page| (page.kind, page.more)), [(2, 1), (1, 0)]);
}
