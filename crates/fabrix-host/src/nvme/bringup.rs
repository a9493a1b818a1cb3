//! Bring-up of a session: a connection for each queue, the admin queue first, and the commands that
//! initialise each queue.
//!
//! A part of `session`. The order of the commands is in `fabrix_proto::nvme::bringup`.

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::bringup::{Bringup, Facts, Step};
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Shard;

use super::limits::{io_queues, io_slots};
use super::plan::config;
use super::queue::{Command, NvmeLink, Queue};
use super::session::Session;
use crate::session::now;
use crate::{ConnectError, ConnectErrorKind, Transport};

impl<L: NvmeLink> Session<L> {
    /// Opens one more connection.
    pub(super) fn open_queue(
        &mut self,
        shard: &mut Shard,
        bringup: Bringup,
        slots: u16,
    ) -> Result<(), ConnectError> {
        let setup = (Arc::clone(&self.plan.options), slots);
        self.open_connection(shard, self.plan.address, setup)?;
        self.protocol.bringups.push(Some(bringup));
        Ok(())
    }

    /// Takes the next step of a queue's bring-up.
    pub(super) fn step(&mut self, shard: &mut Shard, index: usize) {
        let Some(bringup) = &mut self.protocol.bringups[index] else {
            return;
        };
        match bringup.next(now(shard)) {
            Step::Send {
                mut entry,
                data_out,
                data_in_bytes,
            } => {
                let data = data_out.as_deref().map(<[u8; 1024]>::as_slice);
                let queue = &mut self.connections[index];
                if !send(shard, queue, &mut entry, data, data_in_bytes) {
                    let sentence = "this shard has no memory for a command";
                    self.disconnect_with(shard, ConnectErrorKind::Local, sentence);
                }
            }
            Step::Wait { until } => self.step_at(shard, until),
            Step::Ready(facts) => {
                if let Err(error) = self.queue_connected(shard, index, *facts) {
                    self.disconnect(shard, error);
                }
            }
        }
    }

    /// A queue is connected. The admin queue opens the I/O queues. The last queue completes the
    /// bring-up.
    fn queue_connected(
        &mut self,
        shard: &mut Shard,
        index: usize,
        facts: Facts,
    ) -> Result<(), ConnectError> {
        self.protocol.bringups[index] = None;
        if index == 0 {
            self.check(&facts)?;
            let facts = Arc::new(facts);
            self.protocol.facts = Some(Arc::clone(&facts));
            if self.plan.expected.is_some() {
                self.open_io_queues(shard, &facts)?;
            }
        } else {
            let controller = &facts.controller;
            let bytes = match self.plan.transport {
                Transport::Rdma if !controller.offset_data => 0,
                Transport::Tcp | Transport::Rdma => controller.in_capsule_bytes,
            };
            self.connections[index].set_in_capsule(bytes);
        }
        if self.protocol.bringups.iter().all(Option::is_none)
            && let Some(facts) = self.protocol.facts.clone()
        {
            self.connected(shard, facts);
            self.protocol.traffic = (0, shard.now());
            self.request_events(shard);
            self.send_waiting(shard);
        }
        Ok(())
    }

    /// Connects the I/O queues.
    fn open_io_queues(&mut self, shard: &mut Shard, facts: &Facts) -> Result<(), ConnectError> {
        let options = Arc::clone(&self.plan.options);
        let slots = io_slots(&options, facts);
        for queue_id in 1..=io_queues(&options, facts) {
            let entries = u32::from(slots) + 1;
            let config = config(&self.plan);
            let bringup = Bringup::io_queue(config, facts.controller.clone(), queue_id, entries);
            self.open_queue(shard, bringup, slots)?;
        }
        Ok(())
    }

    /// The error when the bring-up takes too long: names the answer that is missing.
    pub(super) fn too_slow(&self, most: Duration) -> ConnectError {
        let bringups = &self.protocol.bringups;
        let index = bringups.iter().position(Option::is_some).unwrap_or(0);
        let queue = &self.connections[index];
        match &bringups[index] {
            _ if !queue.is_connected() => ConnectError::no_connection(most),
            Some(bringup) if queue.is_initialized() => ConnectError::from(bringup.no_answer()),
            _ => ConnectError::new(ConnectErrorKind::Timeout, L::not_a_target(most)),
        }
    }
}

/// Sends a command of the bring-up. False: no memory, or no slot.
fn send(
    shard: &mut Shard,
    queue: &mut Queue<impl NvmeLink>,
    entry: &mut SubmissionEntry,
    data_out: Option<&[u8]>,
    data_in_bytes: u32,
) -> bool {
    let (transfer, bytes) = match data_out {
        Some(data) => {
            let bytes = u32::try_from(data.len()).expect("Connect has 1024 bytes of data");
            (HostTransfer::Write { bytes }, bytes)
        }
        None => (
            HostTransfer::Read {
                bytes: data_in_bytes,
            },
            data_in_bytes,
        ),
    };
    let mut data = None;
    if bytes > 0 {
        let Some(mut buf) = shard.take_buf(bytes as usize) else {
            return false;
        };
        if let Some(source) = data_out {
            buf.bytes_mut().copy_from_slice(source);
        }
        data = Some((buf, 0));
    }
    queue
        .send(shard.now(), entry, transfer, data, Command::Session)
        .is_some()
}
