//! EXTENDED COPY: the disks of a list, the permission to use them, and the results of copies.
//!
//! A list can name only disks that this session sees. The target copies nothing that the initiator
//! could not read or write itself (CVE-2020-28374). It checks this again before each piece, so an
//! initiator that is fenced meanwhile writes no more. The result of a copy is kept until RECEIVE
//! COPY STATUS has returned it, or its session ends.
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
    /// Begins the copy of a list that the logical unit at index `at` got.
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

    /// The segments with their disks. Segments without blocks are left out.
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

    /// Whether a job may make its next request. The initiator of a copy must still be allowed to
    /// read the source and to write the destination, and both must be accessible here.
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
        let accessible = |at: usize| self.access_refusal(self.units.list[at].name()).is_none();
        accessible(from)
            && accessible(to)
            && !self.is_reserved(from, Access::Read)
            && !self.is_reserved(to, Access::Write)
            && !self.disk_views[to].mode.write_protect
    }

    /// The copies in progress that still use a disk, at whichever logical unit they began.
    pub(super) fn copies_at(&self, disk: UnitName) -> impl Iterator<Item = Slot> {
        self.commands.iter().filter_map(move |(slot, work)| {
            let copying = work.job()?.copying()?;
            copying.touches(disk).then_some(slot)
        })
    }

    /// Keeps the result of a copy for RECEIVE COPY STATUS.
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

    /// The status of a copy that is in progress, or whose result was not returned yet.
    pub(super) fn copy_status(&mut self, unit: UnitName, list: u8) -> Option<CopyStatus> {
        let jobs = self.commands.iter().filter_map(|(_, work)| work.job());
        let at_work = jobs.filter(|job| job.name == unit).find_map(|job| {
            let status = job.copying()?.status(CopyProgress::Copying);
            (status.list == list).then_some(status)
        });
        at_work.or_else(|| self.copies.take(unit, list))
    }
}

/// The initiator has no permission to use the disk itself.
const NOT_ALLOWED: Sense = Sense::new(
    SenseKey::COPY_ABORTED,
    AdditionalSense::THIRD_PARTY_DEVICE_FAILURE,
);
