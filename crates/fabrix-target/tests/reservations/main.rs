//! Reservations of one disk by NVMe hosts and iSCSI initiators. Each protocol respects the
//! reservations of the other. Every test runs once over io_uring and once over epoll, with
//! connections on both shards.

#[path = "../common/mod.rs"]
mod common;
#[path = "../iscsi/copying.rs"]
#[allow(dead_code, reason = "shared with another test program")]
mod copying;
#[path = "../iscsi/initiator.rs"]
#[allow(dead_code, reason = "shared with another test program")]
mod initiator;
mod peers;

mod abort;
mod copies;
mod notices;
mod stored;

use common::Stage;
use fabrix_proto::nvme::reservation::{AcquireAction, RegisterAction};
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::scsi::reservation::Kind;
use fabrix_rt::Engine;
use initiator::{FINAL, WRITE};
use peers::{CONFLICT, NvmeHost, Scsi, WRITE_10, keys_of_scsi};

on_both_engines!(
    each_type_admits_whom_it_should,
    a_hosts_reservation_binds_initiators,
    an_initiators_reservation_binds_hosts,
    preempting_works_across_protocols,
    registering_follows_the_key,
    all_controllers_of_a_host_are_one_registrant,
    only_long_host_identifiers_are_reported,
    what_is_not_stored_cannot_be_asked_to_persist,
    a_write_whose_data_come_late_is_checked_again,
    an_initiators_write_whose_data_come_late_is_checked_again,
    a_parameter_list_that_comes_late_is_checked_again,
);

/// Permission to read and to write for a holder, a registrant, and a host without a registration.
fn each_type_admits_whom_it_should(engine: Engine) {
    let stage = Stage::new(engine);
    let mut holder = NvmeHost::new(&stage, 1);
    let mut registrant = NvmeHost::new(&stage, 2);
    let mut stranger = NvmeHost::new(&stage, 3);
    let mut initiator = Scsi::new(&stage, 4);
    for kind in Kind::ALL {
        holder.register(0x11);
        registrant.register(0x22);
        assert_eq!(
            holder.acquire(0x11, 0, AcquireAction::Acquire, kind),
            Status::SUCCESS
        );
        let admits = kind.admits_registrants();
        let reads = !kind.excludes_reads();
        assert_eq!(holder.may(), (true, true), "{kind:?}");
        assert_eq!(registrant.may(), (reads || admits, admits), "{kind:?}");
        assert_eq!(stranger.may(), (reads, false), "{kind:?}");
        assert_eq!(initiator.may(), (reads, false), "{kind:?}");
        let (header, registrants) = holder.report();
        assert_eq!((header.kind, registrants.len()), (kind.nvme_type(), 2));
        let all = kind.all_registrants();
        let holds: Vec<_> = registrants.iter().map(|it| it.status == 1).collect();
        assert_eq!(holds, [true, all], "{kind:?}");
        assert_eq!(registrant.release(0x22, None), Status::SUCCESS);
        // The clear notifies registrants only, so the initiator gets no unit attention.
        assert_eq!(stranger.may(), (true, true));
    }
}

fn a_hosts_reservation_binds_initiators(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = Scsi::new(&stage, 1);
    let (mut host, mut other) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    host.register(7);
    let exclusive = Kind::WriteExclusive;
    assert_eq!(
        host.acquire(7, 0, AcquireAction::Acquire, exclusive),
        Status::SUCCESS
    );
    assert_eq!(initiator.write_status(), CONFLICT);
    assert_eq!(initiator.may(), (true, false));
    assert_eq!(other.may(), (true, false));
    // A RESERVE of the initiator fails, too.
    assert_eq!(
        initiator.reserve_out(1, 7, 0, Kind::WriteExclusive),
        CONFLICT
    );
    assert_eq!(
        other.release(7, Some(exclusive)),
        Status::RESERVATION_CONFLICT
    );
    assert_eq!(
        host.release(7, Some(Kind::ExclusiveAccess)),
        Status::INVALID_FIELD
    );
    assert_eq!(host.release(7, Some(exclusive)), Status::SUCCESS);
    assert_eq!(initiator.may(), (true, true));
    assert_eq!(other.may(), (true, true));
}

fn an_initiators_reservation_binds_hosts(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut one, mut two) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    let mut initiator = Scsi::new(&stage, 1);
    initiator.register(9);
    two.register(5);
    assert_eq!(
        initiator.reserve_out(1, 9, 0, Kind::ExclusiveAccessRegistrants),
        0
    );
    assert_eq!(one.may(), (false, false));
    assert_eq!(two.may(), (true, true));
    assert_eq!(
        two.acquire(5, 0, AcquireAction::Acquire, Kind::WriteExclusive),
        Status::RESERVATION_CONFLICT
    );
    assert_eq!(
        initiator.reserve_out(2, 9, 0, Kind::ExclusiveAccessRegistrants),
        0
    );
    assert_eq!(one.may(), (true, true));
    // RESERVE of SPC-2 shuts hosts out as well, until its session ends.
    assert_eq!(two.unregister(5), Status::SUCCESS);
    initiator.unregister(9);
    assert_eq!(initiator.status(&[0x16, 0, 0, 0, 0, 0]), 0);
    assert_eq!(one.may(), (false, false));
    drop(initiator);
    stage.until("the session has ended", |stage| {
        stage.target.sessions() == 0
    });
    assert_eq!(one.may(), (true, true));
}

fn preempting_works_across_protocols(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = NvmeHost::new(&stage, 1);
    let mut initiator = Scsi::new(&stage, 1);
    host.register(0xA);
    initiator.register(0xB);
    let kind = Kind::WriteExclusiveRegistrants;
    assert_eq!(
        host.acquire(0xA, 0, AcquireAction::Acquire, kind),
        Status::SUCCESS
    );
    // Both are listed in both reports, the holder as such.
    let (header, registrants) = host.report();
    let keys: Vec<_> = registrants.iter().map(|it| it.key.get()).collect();
    assert_eq!((header.generation.get(), keys), (2, vec![0xA, 0xB]));
    assert_eq!(registrants[0].host_id, [1; 16]);
    assert_ne!(registrants[1].host_id, [0; 16]);
    assert_eq!(keys_of_scsi(&mut initiator), [0xA, 0xB]);
    // The initiator preempts the host.
    assert_eq!(initiator.reserve_out(4, 0xB, 0xA, kind), 0);
    assert_eq!(host.may(), (true, false));
    assert_eq!(keys_of_scsi(&mut initiator), [0xB]);
    assert_eq!(
        host.acquire(0xA, 0xB, AcquireAction::Preempt { abort: false }, kind),
        Status::RESERVATION_CONFLICT,
        "who is not registered preempts nobody"
    );
    // The host registers again, and preempts the initiator.
    host.register(0xC);
    let preempt = AcquireAction::Preempt { abort: false };
    assert_eq!(host.acquire(0xC, 0xB, preempt, kind), Status::SUCCESS);
    assert_eq!(initiator.sense(&[0; 6]), Some([6, 0x2A, 5]));
    assert_eq!(initiator.may(), (true, false));
    let (header, registrants) = host.report();
    assert_eq!((header.kind, registrants.len()), (3, 1));
}

fn registering_follows_the_key(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = NvmeHost::new(&stage, 1);
    let mut run = |action, ignore, key, new| host.run_register(action, ignore, None, (key, new));
    use RegisterAction::{Register, Replace, Unregister};
    assert_eq!(run(Unregister, true, 0, 0), Status::RESERVATION_CONFLICT);
    assert_eq!(run(Replace, true, 0, 1), Status::RESERVATION_CONFLICT);
    assert_eq!(run(Register, false, 0, 0), Status::INVALID_FIELD);
    assert_eq!(run(Register, false, 99, 1), Status::SUCCESS);
    assert_eq!(
        run(Register, false, 0, 1),
        Status::SUCCESS,
        "the same again"
    );
    assert_eq!(run(Register, true, 0, 2), Status::RESERVATION_CONFLICT);
    assert_eq!(run(Replace, false, 9, 2), Status::RESERVATION_CONFLICT);
    assert_eq!(run(Replace, false, 1, 2), Status::SUCCESS);
    assert_eq!(run(Replace, true, 9, 3), Status::SUCCESS);
    assert_eq!(run(Unregister, false, 2, 0), Status::RESERVATION_CONFLICT);
    assert_eq!(run(Unregister, false, 3, 0), Status::SUCCESS);
    let (header, registrants) = host.report();
    assert_eq!((header.generation.get(), registrants.len()), (4, 0));
}

fn all_controllers_of_a_host_are_one_registrant(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut one, mut same) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 1));
    one.register(4);
    same.register(4);
    let kind = Kind::ExclusiveAccess;
    assert_eq!(
        same.acquire(4, 0, AcquireAction::Acquire, kind),
        Status::SUCCESS
    );
    assert_eq!(one.may(), (true, true));
    assert_eq!(one.report().1.len(), 1);
    // A host that reconnects with the same identifier keeps its reservation.
    drop((one, same));
    stage.until("it is gone", |stage| stage.target.controllers() == 0);
    assert_eq!(NvmeHost::new(&stage, 2).may(), (false, false));
    assert_eq!(NvmeHost::new(&stage, 1).may(), (true, true));
}

fn only_long_host_identifiers_are_reported(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = NvmeHost::new(&stage, 1);
    assert_eq!(host.short_report(), Status::HOST_ID_INCONSISTENT);
    // Also with a short transfer.
    host.register(0x0102);
    assert_eq!(host.report_bytes(4), [1, 0, 0, 0]);
    assert_eq!(host.report_bytes(76)[72..], [2, 1, 0, 0]);
}

fn what_is_not_stored_cannot_be_asked_to_persist(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = NvmeHost::new(&stage, 1);
    let persist = host.run_register(RegisterAction::Register, false, Some(true), (0, 1));
    assert_eq!(persist, Status::INVALID_FIELD);
    assert_eq!(host.rescap(), 0xFE);
    assert_eq!(host.set_persistence(1), Status::INVALID_FIELD);
    assert_eq!(host.set_persistence(0), Status::SUCCESS);
    let mut initiator = Scsi::new(&stage, 1);
    assert_eq!(initiator.register_persistent(1), 2, "CHECK CONDITION");
    // PTPL_C.
    assert_eq!(initiator.capabilities()[2] & 1, 0);
}

fn a_write_whose_data_come_late_is_checked_again(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut holder, mut slow) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    let (id, r2t) = slow.begin_write(16384);
    holder.register(3);
    let kind = Kind::WriteExclusive;
    assert_eq!(
        holder.acquire(3, 0, AcquireAction::Acquire, kind),
        Status::SUCCESS
    );
    slow.io.feed(&r2t);
    assert_eq!(slow.io.finish(id).status, Status::RESERVATION_CONFLICT);
}

fn an_initiators_write_whose_data_come_late_is_checked_again(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut holder, mut slow) = (Scsi::new(&stage, 1), Scsi::new(&stage, 2));
    let itt = slow.0.begin(FINAL | WRITE, &WRITE_10, 512, &[]);
    let r2t = slow.0.receive();
    assert_eq!(r2t.opcode(), 0x31);
    holder.register(3);
    assert_eq!(holder.reserve_out(1, 3, 0, Kind::WriteExclusive), 0);
    slow.0.data_out(itt, r2t.u32(20), &[7; 512], (0, 512));
    assert_eq!(slow.0.end(&[]).status, CONFLICT);
    let block = slow.0.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512).data;
    assert_eq!(block, [0; 512], "it was written");
}

fn a_parameter_list_that_comes_late_is_checked_again(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut holder, mut slow) = (Scsi::new(&stage, 1), Scsi::new(&stage, 2));
    assert_eq!(slow.write_status(), 0);
    // UNMAP of block 0.
    let mut list = [0; 24];
    (list[1], list[3], list[19]) = (22, 16, 1);
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let itt = slow.0.begin(FINAL | WRITE, &unmap, 24, &[]);
    let r2t = slow.0.receive();
    assert_eq!(r2t.opcode(), 0x31);
    holder.register(3);
    assert_eq!(holder.reserve_out(1, 3, 0, Kind::WriteExclusive), 0);
    slow.0.data_out(itt, r2t.u32(20), &list, (0, 24));
    assert_eq!(slow.0.end(&[]).status, CONFLICT);
    let block = slow.0.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512).data;
    assert_ne!(block, [0; 512], "it was deallocated");
}
