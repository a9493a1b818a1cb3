//! One connection with a monitor: a thread that reads its messages, maps its memory and gives
//! orders to the shard.
//!
//! Nothing of this is on the way of an I/O. The monitor waits for most answers, and so may this
//! thread for it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use fabrix_proto::Violation;
use fabrix_proto::virtio::vhost_user::{
    BODY_BYTES_MAX, DESCRIPTORS_MAX, Event, HEAD_BYTES, Record, Region, Session,
};
use fabrix_proto::virtio::{Broken, blk, feature};
use fabrix_rt::counter;
use sys_devices::{SharedMemory, descriptors};
use zerocopy::IntoBytes;

use super::Desk;
use super::hub::Order;
use super::inflight::Inflight;
use super::memory::GuestMemory;

/// Why a connection ended before its time: a sentence for the log.
pub(super) struct Cut(pub(super) String);

/// Serves one monitor until it leaves; then nothing of its guest is left on the shard. `to_cut` is
/// the same stream.
pub(super) fn serve(stream: &UnixStream, to_cut: UnixStream, desk: &Desk) -> Result<(), Cut> {
    let facts = desk.state().facts;
    let offered = facts.features()
        | feature::VERSION_1
        | feature::INDIRECT_DESCRIPTORS
        | feature::EVENT_INDEX;
    let mut connection = Connection {
        stream,
        desk,
        session: Session::new(offered, facts.config().as_bytes()),
        memory: None,
    };
    desk.ask(Order::Join(to_cut))?;
    let served = loop {
        match connection.message() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(cut) => break Err(cut),
        }
    };
    // What the machine has asked for ends before the next one begins.
    desk.ask(Order::Leave)?;
    served
}

struct Connection<'a> {
    stream: &'a UnixStream,
    desk: &'a Desk,
    session: Session,
    /// Held here too: the last to let go unmaps, which takes its time.
    memory: Option<Arc<GuestMemory>>,
}

impl Connection<'_> {
    /// One message and what it asks for. False: the monitor has left.
    fn message(&mut self) -> Result<bool, Cut> {
        let mut head = [0; HEAD_BYTES];
        let mut body = [0; BODY_BYTES_MAX];
        let mut files = Vec::new();
        if !read(self.stream, &mut head, &mut files)? {
            return Ok(false);
        }
        let bytes = Session::body_bytes(&head)?;
        if bytes > 0 && !read(self.stream, &mut body[..bytes], &mut files)? {
            return Err(Cut::from(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        // The disk may have another size since the last message.
        let facts = self.desk.state().facts;
        self.session.describe(facts.config().as_bytes());
        let event = self.session.message(&head, &body[..bytes], files.len())?;
        let answer = match self.carry_out(event, files)? {
            Some(answer) => Some(answer),
            None => self.session.answer(),
        };
        if let Some(answer) = answer {
            (&*self.stream).write_all(&answer)?;
        }
        Ok(true)
    }

    /// Sends an answer with a file beside it.
    fn answer_with(&self, answer: &[u8], file: &File) -> Result<(), Cut> {
        let sent = descriptors::send(self.stream, answer, &[file.as_fd()])?;
        Ok((&*self.stream).write_all(&answer[sent..])?)
    }

    /// Takes over the record of what is in progress, which outlives this process.
    fn record(&self, record: &Record, files: Vec<OwnedFd>) -> Result<(), Cut> {
        // Its addresses are places in it.
        let all = Region {
            guest: 0,
            bytes: record.bytes,
            user: 0,
            offset: record.offset,
        };
        let mapped = GuestMemory::map(&[all], files);
        let memory =
            mapped.map_err(|error| Cut(format!("the record of requests in progress: {error}")))?;
        let shape = record.shape;
        let record = Inflight::open(memory, shape, &self.desk.disk);
        let record = record.map_err(|Broken(sentence)| Cut(sentence.to_owned()))?;
        let record = Arc::new(record);
        self.desk.ask(Order::Inflight(record)).map(drop)
    }

    /// Does what a message asks for; some have an answer of their own.
    fn carry_out(&mut self, event: Event, files: Vec<OwnedFd>) -> Result<Option<Vec<u8>>, Cut> {
        match event {
            Event::Nothing => {}
            Event::Answer(answer) => return Ok(Some(answer)),
            Event::Memory(regions) => {
                let mapped = GuestMemory::map(&regions, files);
                let mapped = mapped.map_err(|error| Cut(format!("the guest's memory: {error}")))?;
                let mapped = Arc::new(mapped);
                self.desk.ask(Order::Memory(Arc::clone(&mapped)))?;
                self.memory = Some(mapped);
            }
            Event::Start(ring, start) => {
                let kick = one(files)?.ok_or_else(|| Cut("a kick has gone".to_owned()))?;
                self.desk.ask(Order::Writeback(self.is_writeback()))?;
                self.desk.ask(Order::Start(ring, start, kick))?;
            }
            Event::Stop(ring) => {
                let next = self.desk.ask(Order::Stop(ring))?;
                return Ok(Some(self.session.stopped(ring, next)));
            }
            Event::Enable(ring, on) => {
                self.desk.ask(Order::Enable(ring, on))?;
            }
            Event::Call(ring) => {
                self.desk.ask(Order::Call(ring, one(files)?))?;
            }
            Event::Writeback => {
                self.desk.ask(Order::Writeback(self.is_writeback()))?;
            }
            Event::Channel => {
                let channel = files.into_iter().next().map(UnixStream::from);
                let heard = channel.map_or(Ok(()), |channel| self.desk.tell_at(channel));
                heard.map_err(|error| Cut(format!("where changes are to be told: {error}")))?;
            }
            Event::NewRecord(bytes, answer) => {
                let made = SharedMemory::new_file(bytes);
                let file = made.map_err(|error| Cut(format!("no record can be made: {error}")))?;
                self.answer_with(&answer, &file)?;
            }
            Event::Record(record) => self.record(&record, files)?,
        }
        Ok(None)
    }

    /// A guest that has not taken flushes relies on every write.
    fn is_writeback(&self) -> bool {
        self.session.features() & blk::feature::FLUSH != 0 && self.session.writeback()
    }
}

/// The counter that came with a message, if one did.
fn one(files: Vec<OwnedFd>) -> Result<Option<File>, Cut> {
    let first = files.into_iter().next();
    let counter = first.map(counter::from_descriptor).transpose();
    counter.map_err(|error| Cut(format!("by what a queue is kicked or called: {error}")))
}

/// Fills `out`. False: the end, before the first byte.
fn read(stream: &UnixStream, out: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<bool, Cut> {
    let mut done = 0;
    while done < out.len() {
        match descriptors::receive(stream, &mut out[done..], files) {
            Ok(0) if done == 0 => return Ok(false),
            Ok(0) => return Err(Cut("the connection ended within a message".to_owned())),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Cut::from(error)),
        }
        if files.len() > DESCRIPTORS_MAX {
            return Err(Cut("more descriptors than any message has".to_owned()));
        }
    }
    Ok(true)
}

impl From<Violation> for Cut {
    fn from(violation: Violation) -> Self {
        Self(violation.sentence().to_owned())
    }
}

impl From<io::Error> for Cut {
    fn from(error: io::Error) -> Self {
        Self(format!("the connection with the monitor: {error}"))
    }
}
