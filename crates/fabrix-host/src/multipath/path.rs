//! A path of a disk, as its pool sees it: its channel, what it has in progress, and how fast it is.

use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::OpenError;
use fabrix_rt::{Nanos, Shard, Token};

use super::Link;
use super::link::{Access, AssociationName, PathChannel, PathLink};
use super::policy::View;
use super::roster::Member;
use super::table::Entry;

pub(super) struct Path {
    /// Its number among the paths of the disk.
    pub(super) index: usize,
    /// Distance of its card, see [`View::distance`].
    distance: u8,
    /// Its number among all paths that have ever joined the disk.
    pub(super) join: u64,
    /// It has left the disk: it gets no more requests.
    pub(super) is_leaving: bool,
    pub(super) channel: Option<Box<dyn PathChannel>>,
    pub(super) link: Rc<PathLink>,
    /// Its target executes no requests before.
    refuses_until: Nanos,
    /// Its session had no room, and none of its requests has ended since. It is tried again then.
    full_until: Nanos,
    requests: u32,
    bytes: u64,
    answer_ns: u64,
    kib_ns: u64,
    /// When its last request has ended.
    ended_at: Nanos,
}

impl Path {
    /// Opens a path of a disk that has so many blocks on this shard. It tells its news to a token.
    pub(super) fn open(
        shard: &mut Shard,
        (member, distance, blocks): (&Member, u8, u64),
        news: Token,
    ) -> Result<Self, OpenError> {
        let link = Rc::new(PathLink::new(news));
        let disk = match member.disk.geometry().blocks == blocks {
            true => Arc::clone(&member.disk),
            false => member.disk.sized(blocks),
        };
        let channel = disk.open_path(shard, Link(Rc::clone(&link)))?;
        Ok(Self {
            index: member.number,
            distance,
            join: member.join,
            is_leaving: false,
            channel: Some(channel),
            link,
            refuses_until: Nanos(0),
            full_until: Nanos(0),
            requests: 0,
            bytes: 0,
            answer_ns: 0,
            kib_ns: 0,
            ended_at: Nanos(0),
        })
    }

    /// Asks the target over this path to end a lost association, see
    /// [`PathChannel::end_association`].
    pub(super) fn end_association(
        &mut self,
        shard: &mut Shard,
        lost: &AssociationName,
        answer: Token,
    ) -> bool {
        let channel = self.channel.as_mut().filter(|_| self.link.is_up());
        channel.is_some_and(|channel| channel.end_association(shard, lost, answer))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.channel.is_some() && self.link.is_up()
    }

    /// Whether the path is connected and stays, and its target executes requests as far as it has
    /// told.
    pub(super) fn is_up(&self) -> bool {
        let executes = self.link.access() != Access::Inaccessible;
        self.is_connected() && !self.is_leaving && executes
    }

    /// Whether it has no request in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.requests == 0
    }

    pub(super) fn view(&self, now: Nanos) -> View {
        View {
            is_usable: self.is_up() && now >= self.resumes_at(),
            is_optimized: self.link.access() == Access::Optimized,
            requests: self.requests,
            bytes: self.bytes,
            answer_ns: self.answer_ns,
            kib_ns: self.kib_ns,
            distance: self.distance,
        }
    }

    /// When the path takes requests again, while it is up.
    pub(super) fn resumes_at(&self) -> Nanos {
        self.refuses_until.max(self.full_until)
    }

    /// The target does not execute requests now.
    pub(super) fn refuses(&mut self, until: Nanos) {
        self.refuses_until = until;
    }

    /// The session has no room for another request.
    pub(super) fn is_full(&mut self, until: Nanos) {
        self.full_until = until;
    }

    pub(super) fn close(&mut self) {
        self.channel = None;
    }

    pub(super) fn began(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    /// A request has ended. Its time is measured.
    pub(super) fn ended(&mut self, entry: &Entry, now: Nanos) {
        self.requests -= 1;
        self.bytes -= entry.bytes;
        self.full_until = Nanos(0);
        let busy_from = entry.sent_at.max(self.ended_at);
        self.ended_at = now;
        let kib = entry.bytes.div_ceil(1024).max(1);
        self.answer_ns = mean(self.answer_ns, nanoseconds(now, entry.sent_at));
        self.kib_ns = mean(self.kib_ns, nanoseconds(now, busy_from) / kib);
    }
}

fn nanoseconds(now: Nanos, since: Nanos) -> u64 {
    u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX)
}

/// A mean in which each new value counts an eighth. Zero means that nothing was measured.
fn mean(before: u64, value: u64) -> u64 {
    match before {
        0 => value.max(1),
        before => (before - before / 8 + value / 8).max(1),
    }
}
