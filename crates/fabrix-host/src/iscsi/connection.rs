//! The connection of an iSCSI session. A session has one.
//!
//! Adds the calls of iSCSI to [`Connection`](connection::Connection).

use fabrix_block::Status as DiskStatus;
use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::{Carrier, Framing};
use fabrix_proto::iscsi::initiator::{Event, Initiator, LoginConfig, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::cdb::build::Cdb;
use fabrix_rt::{Buf, Nanos};
use fabrix_transport::{self as transport, Connection as _, Incoming, Outgoing};

use crate::connection::{self, Abandoned, InFlight, OtherCommand};
use crate::link::Link;
use crate::request::Request;

/// A link that carries iSCSI sessions.
pub(crate) trait IscsiLink:
    Link<
        Setup = LoginConfig,
        Stream: transport::Connection<Event = Event> + Carrier<Endpoint = Initiator>,
    >
{
}

impl<L> IscsiLink for L where
    L: Link<
            Setup = LoginConfig,
            Stream: transport::Connection<Event = Event> + Carrier<Endpoint = Initiator>,
        >
{
}

/// Commands that are not simply the command of a request.
pub(crate) enum OwnCommand {
    /// SYNCHRONIZE CACHE behind a durable write: the disk has a cache and does not support FUA.
    Flush(Request),
    /// A command of the bring-up.
    Bringup,
    /// REPORT TARGET PORT GROUPS.
    States,
    /// TEST UNIT READY, which lets an idle disk report unit attentions.
    Poll,
}

impl OtherCommand for OwnCommand {
    fn into_request(self) -> Option<(Request, Option<Abandoned>)> {
        match self {
            Self::Flush(request) => Some((request, None)),
            Self::Bringup | Self::States | Self::Poll => None,
        }
    }
}

/// A SCSI command to send: logical unit, CDB and data transfer.
pub(crate) struct Command {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) transfer: Transfer,
}

/// The connection of a session.
pub(crate) type Connection<L> = connection::Connection<L, OwnCommand>;

impl<L: IscsiLink> Connection<L> {
    /// The initiator and the framing that its calls need, once the transport has connected.
    pub(crate) fn speak(&mut self) -> Option<(&mut Initiator, impl Framing)> {
        Some(self.link.stream_mut()?.speak())
    }

    /// The initiator, once the transport has connected.
    pub(crate) fn endpoint(&self) -> Option<&Initiator> {
        Some(self.link.stream()?.endpoint())
    }

    /// Sends a command with its data.
    ///
    /// # Errors
    /// No slot is free, the connection is not open, or the command window is closed. The content
    /// and the data are given back.
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        command: &Command,
        data: Option<Buf>,
        content: InFlight<OwnCommand>,
    ) -> Result<(), (InFlight<OwnCommand>, Option<Buf>)> {
        let Some((slot, stream)) = self.reserve() else {
            return Err((content, data));
        };
        match (data, &command.transfer) {
            (Some(buf), Transfer::Write { .. }) => stream.send_from(slot, Outgoing::Buf(buf, 0)),
            (Some(buf), _) => stream.receive_into(slot, Incoming::Buf(buf, 0)),
            (None, _) => {}
        }
        let (initiator, mut out) = stream.speak();
        let Command { lun, cdb, transfer } = command;
        let is_sent = initiator.command(slot, *lun, cdb, *transfer, &mut out);
        drop(out);
        if is_sent {
            self.put(slot, content);
            self.sent(slot, now);
            return Ok(());
        }
        let data = stream.release(slot);
        self.free(slot);
        Err((content, data))
    }

    /// Completes a request later, when its data has been sent.
    pub(crate) fn keep(&mut self, slot: Slot, request: Request, status: DiskStatus) {
        self.put(slot, InFlight::Answered { request, status });
    }
}
