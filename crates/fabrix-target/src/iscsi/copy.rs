//! EXTENDED COPY: who the disks of a list are, whether they may be reached, and what became of
//! copies.
//!
//! Disks are looked for among those that this session sees, and nowhere else; what the initiator
//! might not read or write itself is not copied for it either (CVE-2020-28374), and that is asked
//! again before each piece: who is fenced meanwhile writes no more. A copy is remembered until
//! somebody has asked what became of it, and no longer than its session.
//!
//! Source: SPC-4, "EXTENDED COPY(LID1) command", "RECEIVE COPY STATUS(LID1) command".

use fabrix_proto::iscsi::target::Answer as Response;
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::copy::{CopyList, CopyProgress, CopyStatus, Segment};
use fabrix_proto::scsi::reservation::Access;
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::unit::{Answer, Failure};
use fabrix_proto::{Claim, Settled, Slot};

use super::context::SessionCarrier;
use super::job::copying::{Copying, Route};
use super::job::{Job, JobWork};
use super::session::Session;
use super::units::UnitName;
use crate::context::CommandContext;

impl Session {
    /// Copies what the list of a command says, which the logical unit at this place was asked for.
    pub(super) fn copy(
        &mut self,
        context: &mut CommandContext<'_, impl SessionCarrier>,
        claim: Claim,
        at: usize,
        list: &CopyList,
        moved: u32,
    ) -> Settled {
        let routes = match self.routes(list) {
            Ok(routes) => routes,
            Err(sense) => return self.answer_page(context, claim, Some(at), &Answer::check(sense)),
        };
        let unit = &self.units.list[at];
        let copying = Copying::new(list.list, list.kept, routes);
        if copying.buffer_bytes() == 0 {
            self.remember_copy(unit.name(), &copying, CopyProgress::Done);
            return self.respond(context, claim, &Response::good(moved));
        }
        let buffer = context.shard.take_buf(copying.buffer_bytes());
        let mut job = Job::new(unit, at, JobWork::Copy(Box::new(copying)), moved);
        job.made = buffer;
        if job.made.is_none() {
            return self.fail(context, claim, Some(at), Failure::Busy);
        }
        self.run(context, claim, job, None)
    }

    /// The ways that the blocks go; segments of no blocks are none.
    fn routes(&mut self, list: &CopyList) -> Result<Vec<Route>, Sense> {
        let named = |designator: &_| {
            let units = self.units.list.iter();
            units.enumerate().find(|(_, unit)| {
                let designator: &fabrix_proto::scsi::copy::Designator = designator;
                designator.names(&unit.disk)
            })
        };
        let found: Vec<_> = list.devices.iter().map(named).collect();
        let disks: Vec<_> = found
            .iter()
            .map(|found| found.map(|(_, unit)| &unit.disk))
            .collect();
        list.check(&disks)?;
        let places: Vec<_> = found.iter().map(|found| found.map(|(at, _)| at)).collect();
        let segments = list.segments.iter().filter(|segment| segment.blocks > 0);
        segments
            .map(|segment| self.route(segment, &places))
            .collect()
    }

    fn route(&mut self, segment: &Segment, places: &[Option<usize>]) -> Result<Route, Sense> {
        let place = |index: usize| places.get(index).copied().flatten().ok_or(NOT_ALLOWED);
        let (from, to) = (place(segment.source)?, place(segment.destination)?);
        if !self.may_copy_between(from, to) {
            return Err(NOT_ALLOWED);
        }
        let (source, destination) = (&self.units.list[from], &self.units.list[to]);
        let mode = self.disk_views[to].mode;
        let transfer = |unit: &super::units::Unit| unit.disk.max_transfer_bytes;
        Ok(Route {
            source: (source.name(), segment.source_lba),
            destination: (destination.name(), segment.destination_lba),
            blocks: segment.blocks,
            block_bytes: source.disk.block_bytes,
            max_transfer_bytes: transfer(source).min(transfer(destination)),
            durable: destination.disk.volatile_cache && !mode.write_cache,
        })
    }

    /// Whether a job may make its next request: of a copy the initiator must still be allowed to
    /// read its source and to write its destination, whoever reserved or protected them since it
    /// began.
    pub(super) fn may_go_on(&mut self, job: &Job) -> bool {
        let Some((source, destination)) = job.copying().and_then(Copying::disks) else {
            return true;
        };
        match (self.units.find(source), self.units.find(destination)) {
            (Some(from), Some(to)) => self.may_copy_between(from, to),
            _ => false,
        }
    }

    fn may_copy_between(&mut self, from: usize, to: usize) -> bool {
        !self.is_reserved(from, Access::Read)
            && !self.is_reserved(to, Access::Write)
            && !self.disk_views[to].mode.write_protect
    }

    /// The copies at work that still have something to do with a disk, whichever logical unit was
    /// asked for them.
    pub(super) fn copies_at(&self, disk: UnitName) -> impl Iterator<Item = Slot> {
        self.commands.iter().filter_map(move |(slot, work)| {
            let copying = work.job()?.copying()?;
            copying.touches(disk).then_some(slot)
        })
    }

    /// A copy has ended, and may be asked about.
    pub(super) fn remember_copy(
        &mut self,
        unit: UnitName,
        copying: &Copying,
        progress: CopyProgress,
    ) {
        if copying.kept {
            self.copies.remember(unit, copying.status(progress));
        }
    }

    /// What is known of a copy: one at work, or one that has ended and was not asked about yet.
    pub(super) fn copy_status(&mut self, unit: UnitName, list: u8) -> Option<CopyStatus> {
        let jobs = self.commands.iter().filter_map(|(_, work)| work.job());
        let at_work = jobs.filter(|job| job.name == unit).find_map(|job| {
            let status = job.copying()?.status(CopyProgress::Copying);
            (status.list == list).then_some(status)
        });
        at_work.or_else(|| self.copies.take(unit, list))
    }
}

/// What the initiator may not do itself is not done for it.
const NOT_ALLOWED: Sense = Sense::new(
    SenseKey::COPY_ABORTED,
    AdditionalSense::THIRD_PARTY_DEVICE_FAILURE,
);
