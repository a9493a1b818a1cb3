//! One connection with a monitor: a thread that reads messages, maps memory and sends orders to the
//! shard.
//!
//! This code is not on the data path. The monitor waits for most answers, so this thread may block.

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

use super::VhostServer;
use super::hub::Order;
use super::inflight::Inflight;
use super::memory::GuestMemory;

/// Reason for an early end of a connection: a sentence for the log.
pub(super) struct Disconnect(pub(super) String);

/// Serves one monitor until it disconnects. Afterwards the shard has no state of its guest.
/// `to_cut` is a duplicate of `stream`.
pub(super) fn serve(
    stream: &UnixStream,
    to_cut: UnixStream,
    server: &VhostServer,
) -> Result<(), Disconnect> {
    let facts = server.state().facts;
    let offered = facts.features()
        | feature::VERSION_1
        | feature::INDIRECT_DESCRIPTORS
        | feature::EVENT_INDEX;
    let mut connection = Connection {
        stream,
        server,
        session: Session::new(offered, facts.config().as_bytes()),
        memory: None,
    };
    server.execute(Order::Join(to_cut))?;
    let served = loop {
        match connection.message() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(cut) => break Err(cut),
        }
    };
    // The requests of this guest end before the next guest starts.
    server.execute(Order::Leave)?;
    served
}

struct Connection<'a> {
    stream: &'a UnixStream,
    server: &'a VhostServer,
    session: Session,
    /// A second reference: unmapping takes time, and the last reference must not be dropped on the
    /// shard.
    memory: Option<Arc<GuestMemory>>,
}

impl Connection<'_> {
    /// Handles one message. False: the monitor has disconnected.
    fn message(&mut self) -> Result<bool, Disconnect> {
        let mut head = [0; HEAD_BYTES];
        let mut body = [0; BODY_BYTES_MAX];
        let mut files = Vec::new();
        if !read(self.stream, &mut head, &mut files)? {
            return Ok(false);
        }
        let bytes = Session::body_bytes(&head)?;
        if bytes > 0 && !read(self.stream, &mut body[..bytes], &mut files)? {
            return Err(Disconnect::from(io::Error::from(
                io::ErrorKind::UnexpectedEof,
            )));
        }
        // The disk may have been resized since the last message.
        let facts = self.server.state().facts;
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

    /// Sends an answer with a file descriptor.
    fn answer_with(&self, answer: &[u8], file: &File) -> Result<(), Disconnect> {
        let sent = descriptors::send(self.stream, answer, &[file.as_fd()])?;
        Ok((&*self.stream).write_all(&answer[sent..])?)
    }

    /// Opens the record of requests in progress, which survives this process.
    fn record(&self, record: &Record, files: Vec<OwnedFd>) -> Result<(), Disconnect> {
        // The addresses of the record are offsets in this region.
        let all = Region {
            guest: 0,
            bytes: record.bytes,
            user: 0,
            offset: record.offset,
        };
        let memory = GuestMemory::map(&[all], files);
        let memory = memory.map_err(about("the record of requests in progress"))?;
        let shape = record.shape;
        let record = Inflight::open(memory, shape, &self.server.disk);
        let record = record.map_err(|Broken(sentence)| Disconnect(sentence.to_owned()))?;
        let record = Arc::new(record);
        self.server.execute(Order::Inflight(record)).map(drop)
    }

    /// Executes the order of a message. Some orders have their own answer.
    fn carry_out(
        &mut self,
        event: Event,
        files: Vec<OwnedFd>,
    ) -> Result<Option<Vec<u8>>, Disconnect> {
        match event {
            Event::Nothing => {}
            Event::Answer(answer) => return Ok(Some(answer)),
            Event::Memory(regions) => {
                let mapped = GuestMemory::map(&regions, files);
                let mapped = Arc::new(mapped.map_err(about("the guest's memory"))?);
                self.server.execute(Order::Memory(Arc::clone(&mapped)))?;
                self.memory = Some(mapped);
            }
            Event::Start(ring, start) => {
                let kick = one(files)?
                    .ok_or_else(|| Disconnect("a queue's kick eventfd is missing".to_owned()))?;
                self.server.execute(Order::Writeback(self.is_writeback()))?;
                self.server.execute(Order::Start(ring, start, kick))?;
            }
            Event::Stop(ring) => {
                let next = self.server.execute(Order::Stop(ring))?;
                return Ok(Some(self.session.stopped(ring, next)));
            }
            Event::Enable(ring, on) => {
                self.server.execute(Order::Enable(ring, on))?;
            }
            Event::Call(ring) => {
                self.server.execute(Order::Call(ring, one(files)?))?;
            }
            Event::Writeback => {
                self.server.execute(Order::Writeback(self.is_writeback()))?;
            }
            Event::Channel => {
                if let Some(channel) = files.into_iter().next().map(UnixStream::from) {
                    let stored = self.server.set_notification_socket(channel);
                    stored.map_err(about("the socket for changes of the disk"))?;
                }
            }
            Event::NewRecord(bytes, answer) => {
                let file = SharedMemory::new_file(bytes);
                let file = file.map_err(about("no record can be made"))?;
                self.answer_with(&answer, &file)?;
            }
            Event::Record(record) => self.record(&record, files)?,
        }
        Ok(None)
    }

    /// A guest that did not negotiate flushes relies on every single write.
    fn is_writeback(&self) -> bool {
        self.session.features() & blk::feature::FLUSH != 0 && self.session.writeback()
    }
}

/// The eventfd of a message, if it has one.
fn one(files: Vec<OwnedFd>) -> Result<Option<File>, Disconnect> {
    let first = files.into_iter().next();
    let counter = first.map(counter::from_descriptor).transpose();
    counter.map_err(about("a queue's kick or call eventfd"))
}

/// The sentence for an error of the operating system: its subject, and the error.
fn about(subject: &str) -> impl Fn(io::Error) -> Disconnect {
    move |error| Disconnect(format!("{subject}: {error}"))
}

/// Fills `out`. False: the stream ended before the first byte.
fn read(stream: &UnixStream, out: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<bool, Disconnect> {
    let mut done = 0;
    while done < out.len() {
        match descriptors::receive(stream, &mut out[done..], files) {
            Ok(0) if done == 0 => return Ok(false),
            Ok(0) => {
                return Err(Disconnect(
                    "the connection ended within a message".to_owned(),
                ));
            }
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Disconnect::from(error)),
        }
        if files.len() > DESCRIPTORS_MAX {
            return Err(Disconnect(
                "more descriptors than any message has".to_owned(),
            ));
        }
    }
    Ok(true)
}

impl From<Violation> for Disconnect {
    fn from(violation: Violation) -> Self {
        Self(violation.sentence().to_owned())
    }
}

impl From<io::Error> for Disconnect {
    fn from(error: io::Error) -> Self {
        about("the connection with the monitor")(error)
    }
}
