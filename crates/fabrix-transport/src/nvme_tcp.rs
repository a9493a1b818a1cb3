//! NVMe/TCP as a transport of NVMe's queues: a stream, and the machine on it, keep the contract of
//! [`fabrix_proto::nvme::queue`].
//!
//! Every call goes to the machine, with the stream's outbox as its sink. Knows that an answer ends
//! the need for a slot's payload; does not know what a command means.

use fabrix_proto::nvme::queue::{ControllerQueue, HostQueue, HostTransfer};
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::Host;
use fabrix_proto::nvme::tcp::target::Target;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Lent;

use crate::{Connection, Stream};

impl ControllerQueue for Stream<Target> {
    type Lent = Lent;

    #[inline(always)]
    fn entry(&self) -> &SubmissionEntry {
        self.machine().entry()
    }

    fn set_queue(&mut self, is_admin: bool, entries: u32, flow_control: bool) {
        let (machine, _) = self.speak();
        machine.set_queue(is_admin, entries);
        machine.set_flow_control(flow_control);
    }

    #[inline(always)]
    fn is_admin(&self) -> bool {
        self.machine().is_admin()
    }

    /// A data digest is computed before the data leaves.
    #[inline(always)]
    fn needs_buffers(&self) -> bool {
        self.machine().digests().data
    }

    #[inline(always)]
    fn fetch(&mut self, slot: Slot) {
        let (machine, mut out) = self.speak();
        machine.fetch(slot, &mut out);
    }

    #[inline(always)]
    fn answer(
        &mut self,
        claim: Claim,
        entry: CompletionEntry,
        data_bytes: u32,
        lent: Option<Lent>,
    ) -> Settled {
        let slot = claim.slot();
        let (machine, mut out) = self.speak_of(lent);
        if machine.answer(slot, entry, data_bytes, &mut out) {
            drop(out);
            self.release(slot);
        }
        claim.answered()
    }

    fn forget_event_requests(&mut self) {
        self.speak().0.forget_event_requests();
    }

    fn slots_in_use(&self) -> usize {
        self.machine().slots_in_use()
    }

    fn termination(&self) -> Option<String> {
        self.machine().goodbye().map(|why| why.to_string())
    }
}

impl HostQueue for Stream<Host> {
    #[inline(always)]
    fn submit(&mut self, slot: Slot, entry: &mut SubmissionEntry, transfer: HostTransfer) -> bool {
        let (machine, mut out) = self.speak();
        machine.command(slot, entry, transfer, &mut out)
    }

    #[inline(always)]
    fn entry(&self) -> &CompletionEntry {
        self.machine().entry()
    }

    fn set_in_capsule(&mut self, bytes: u32) {
        self.speak().0.set_in_capsule(bytes);
    }

    fn is_ready(&self) -> bool {
        self.machine().is_ready()
    }

    fn termination(&self) -> Option<String> {
        self.machine().goodbye().map(|why| why.to_string())
    }
}
