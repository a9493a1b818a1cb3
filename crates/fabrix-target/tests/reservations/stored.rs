//! Reservations that outlive the target. A change is answered when it is stored, and is in force
//! again after the next start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fabrix_block::{Device, Identity};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::reservation::{AcquireAction, RegisterAction};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::scsi::reservation::Kind;
use fabrix_rt::Engine;
use fabrix_target::{Receipt, ReservationStore};

use crate::common::host::Data;
use crate::common::{Plan, Stage, ram};
use crate::on_both_engines;
use crate::peers::{NvmeHost, Scsi, keys_of_scsi};

on_both_engines!(
    what_was_stored_holds_after_a_restart,
    nothing_holds_or_is_answered_before_it_is_stored,
    what_cannot_be_stored_does_not_hold,
    the_persistence_feature_is_stored_too,
    another_target_of_a_shared_disk_goes_on_with_all_reservations,
);

/// A store in memory that can hold receipts back, or lose them.
#[derive(Default)]
struct Memory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    stored: HashMap<[u8; 16], Vec<u8>>,
    is_shared: bool,
    fails: bool,
    holds_back: bool,
    waiting: Vec<Receipt>,
}

impl ReservationStore for Memory {
    fn keeps(&self, _: &dyn Device) -> bool {
        true
    }

    fn is_shared(&self, _: &dyn Device) -> bool {
        self.kept().is_shared
    }

    fn load(&self, disk: &Identity) -> Result<Option<Vec<u8>>, String> {
        Ok(self.kept().stored.get(&disk.uuid).cloned())
    }

    fn place(&self, _: &Identity) -> String {
        "memory".to_owned()
    }

    fn store(&self, disk: &Identity, bytes: Vec<u8>, receipt: Receipt) {
        let mut kept = self.kept();
        if kept.fails {
            return;
        }
        kept.stored.insert(disk.uuid, bytes);
        if kept.holds_back {
            kept.waiting.push(receipt);
        } else {
            drop(kept);
            receipt.stored();
        }
    }
}

impl Memory {
    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().expect("no panic with it")
    }

    fn let_go(&self) {
        let waiting = std::mem::take(&mut self.kept().waiting);
        waiting.into_iter().for_each(Receipt::stored);
    }
}

fn plan(keeper: &Arc<Memory>) -> Plan {
    Plan {
        reservation_store: Some(Arc::clone(keeper) as Arc<dyn ReservationStore>),
        devices: vec![ram("stored", 512, 16 << 20)],
        ..Plan::default()
    }
}

fn what_was_stored_holds_after_a_restart(engine: Engine) {
    let keeper = Arc::new(Memory::default());
    let stage = Stage::set(engine, plan(&keeper));
    let mut host = NvmeHost::new(&stage, 1);
    let mut initiator = Scsi::new(&stage, 1);
    assert_eq!(host.rescap(), 0xFF);
    assert_eq!(initiator.capabilities()[2] & 1, 1, "PTPL_C");
    assert_eq!(initiator.register_persistent(5), 0);
    host.register(7);
    let kind = Kind::WriteExclusive;
    assert_eq!(
        host.acquire(7, 0, AcquireAction::Acquire, kind),
        Status::SUCCESS
    );
    assert_eq!(host.report().0.persists, 1);
    drop((host, initiator, stage));

    let stage = Stage::set(engine, plan(&keeper));
    let mut initiator = Scsi::new(&stage, 1);
    assert_eq!(initiator.may(), (true, false));
    assert_eq!(keys_of_scsi(&mut initiator), [5, 7]);
    assert_eq!(NvmeHost::new(&stage, 2).may(), (true, false));
    let mut host = NvmeHost::new(&stage, 1);
    assert_eq!(host.may(), (true, true));
    // The registrant turns persistence off: after the next start no reservation exists.
    let action = RegisterAction::Replace;
    assert_eq!(
        host.run_register(action, false, Some(false), (7, 8)),
        Status::SUCCESS
    );
    drop((host, initiator, stage));
    let stage = Stage::set(engine, plan(&keeper));
    assert_eq!(NvmeHost::new(&stage, 2).may(), (true, true));
}

fn nothing_holds_or_is_answered_before_it_is_stored(engine: Engine) {
    let keeper = Arc::new(Memory::default());
    let stage = Stage::set(engine, plan(&keeper));
    let (mut host, mut other) = (NvmeHost::new(&stage, 1), NvmeHost::new(&stage, 2));
    let register = RegisterAction::Register;
    assert_eq!(
        host.run_register(register, false, Some(true), (0, 1)),
        Status::SUCCESS
    );
    keeper.kept().holds_back = true;
    let entry =
        SubmissionEntry::reservation_acquire(1, AcquireAction::Acquire, Kind::WriteExclusive);
    let mut keys = [0; 16];
    keys[0] = 1;
    let id = host.io.submit(entry, Data::Inline(&keys));
    stage.until("it is being stored", |_| !keeper.kept().waiting.is_empty());
    assert_eq!(other.may(), (true, true), "it does not hold yet");
    for _ in 0..20 {
        let read = host
            .io
            .submit(SubmissionEntry::read(1, 64, 1), Data::Expect(512));
        assert_eq!(host.io.next_answer().expect("an answer").0, read);
    }
    // A change that arrives meanwhile waits.
    let entry = SubmissionEntry::reservation_register(1, register, false, None);
    keys = [0; 16];
    keys[8] = 2;
    let waits = other.io.submit(entry, Data::Inline(&keys));
    assert_eq!(other.may(), (true, true));
    keeper.kept().holds_back = false;
    keeper.let_go();
    assert_eq!(host.io.finish(id).status, Status::SUCCESS);
    assert_eq!(other.io.finish(waits).status, Status::SUCCESS);
    assert_eq!(other.may(), (true, false));
}

fn what_cannot_be_stored_does_not_hold(engine: Engine) {
    let keeper = Arc::new(Memory::default());
    let stage = Stage::set(engine, plan(&keeper));
    let mut initiator = Scsi::new(&stage, 1);
    assert_eq!(initiator.register_persistent(5), 0);
    keeper.kept().fails = true;
    assert_eq!(initiator.reserve_out(1, 5, 0, Kind::ExclusiveAccess), 2);
    let mut host = NvmeHost::new(&stage, 1);
    assert_eq!(host.may(), (true, true));
    let register = RegisterAction::Register;
    let failed = host.run_register(register, false, None, (0, 1));
    assert_eq!(failed, Status::INTERNAL_ERROR);
    keeper.kept().fails = false;
    assert_eq!(initiator.reserve_out(1, 5, 0, Kind::ExclusiveAccess), 0);
    assert_eq!(host.may(), (false, false));
}

fn the_persistence_feature_is_stored_too(engine: Engine) {
    let keeper = Arc::new(Memory::default());
    let stage = Stage::set(engine, plan(&keeper));
    let mut host = NvmeHost::new(&stage, 1);
    host.register(1);
    assert_eq!(host.set_persistence(1), Status::SUCCESS);
    assert_eq!(host.feature(FeatureId::RESERVATION_PERSISTENCE), 1);
    drop((host, stage));
    let stage = Stage::set(engine, plan(&keeper));
    assert_eq!(NvmeHost::new(&stage, 2).report().1.len(), 1);
}

/// Reservations that need not survive a loss of power survive a change of the gateway.
fn another_target_of_a_shared_disk_goes_on_with_all_reservations(engine: Engine) {
    let keeper = Arc::new(Memory::default());
    keeper.kept().is_shared = true;
    let (first, second) = (
        Stage::set(engine, plan(&keeper)),
        Stage::set(engine, plan(&keeper)),
    );
    let mut host = NvmeHost::new(&first, 1);
    host.register(1);
    assert_eq!(
        host.acquire(1, 0, AcquireAction::Acquire, Kind::WriteExclusive),
        Status::SUCCESS
    );
    assert_eq!(host.report().0.persists, 0);
    let (mut same, mut other) = (NvmeHost::new(&second, 1), NvmeHost::new(&second, 2));
    assert_eq!(other.may(), (true, true), "the second knows nothing yet");
    second.target.load_reservations(1).expect("they are read");
    assert_eq!((other.may(), same.may()), ((true, false), (true, true)));
    let replace = RegisterAction::Replace;
    assert_eq!(
        same.run_register(replace, false, None, (1, 2)),
        Status::SUCCESS
    );
    first.target.load_reservations(1).expect("they are read");
    assert_eq!(
        host.acquire(1, 0, AcquireAction::Acquire, Kind::WriteExclusive),
        Status::RESERVATION_CONFLICT
    );

    // A target that goes on alone begins anew after a loss of power.
    keeper.kept().is_shared = false;
    let stage = Stage::set(engine, plan(&keeper));
    assert_eq!(NvmeHost::new(&stage, 2).may(), (true, true));
}
