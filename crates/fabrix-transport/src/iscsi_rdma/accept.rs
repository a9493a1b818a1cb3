//! The sizes of an accepted connection, and what its initiator is told.

use std::io;
use std::net::SocketAddr;

use fabrix_proto::Nanos;
use fabrix_proto::iscsi::iser::connect::ConnectData;
use fabrix_proto::iscsi::iser::{MESSAGE_BYTES_MAX, REPLY_BYTES_MAX};
use fabrix_proto::iscsi::target::{Target, TargetLimits};
use fabrix_rt::{Shard, Token};
use sys_rdma::{Parameters, QueueSizes};
use zerocopy::IntoBytes;

use super::IserQueue;
use crate::rdma::{DetachedRequest, Hub, Member};

impl IserQueue<Member> {
    /// Accepts the connection of an initiator. The window of `limits` shrinks if the device has no
    /// room for so many commands. `token` is that of the connection's task.
    ///
    /// # Errors
    /// `OutOfMemory` without buffers or locked memory, and what RDMA lacks or the device says. The
    /// initiator is refused then.
    pub fn accept(
        shard: &mut Shard,
        request: DetachedRequest,
        mut limits: TargetLimits,
        token: Token,
    ) -> io::Result<Self> {
        let hub = Hub::of(shard)?;
        let asked = request.parameters;
        let mut invalidates = ConnectData::parse(&asked.private_data).takes_invalidation();
        let member = hub.accept(shard, request.id, token, |device| {
            limits = limits_within(device.work_requests, limits);
            invalidates &= device.invalidates;
            let reads = asked.initiator_depth.min(device.initiator_depth);
            let parameters = Parameters {
                private_data: ConnectData::new(invalidates).as_bytes().to_vec(),
                responder_resources: 0,
                initiator_depth: reads.min(READS_MOST),
            };
            (sizes(limits.slots()), parameters)
        })?;
        let target = Target::new(limits, Nanos(shard.now().0));
        Ok(Self::new(member, target, limits.slots(), invalidates))
    }

    /// Address of this end.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.wire.pair.as_ref().and_then(Member::local_addr)
    }
}

/// Limits of a target whose commands find room in a queue pair with so many work requests. The
/// initiator learns the window from the target, so the smaller window binds it. A device without
/// room for a window of 1 refuses the queue pair.
fn limits_within(work_requests: u32, limits: TargetLimits) -> TargetLimits {
    let receives = work_requests.saturating_sub(OTHER_REQUESTS);
    let room = receives.min(work_requests / REQUESTS_PER_SLOT);
    let slots = u16::try_from(room).unwrap_or(u16::MAX);
    let most = slots.saturating_sub(limits.immediate).max(1);
    TargetLimits {
        window: limits.window.min(most),
        ..limits
    }
}

/// Sizes of a queue pair for so many commands. What finds no room waits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "messages have a few kilobytes"
)]
fn sizes(slots: u16) -> QueueSizes {
    QueueSizes {
        sends: u32::from(slots) * REQUESTS_PER_SLOT,
        receives: u32::from(slots) + OTHER_REQUESTS,
        receive_bytes: MESSAGE_BYTES_MAX as u32,
        message_bytes: REPLY_BYTES_MAX as u32,
        windows: 0,
    }
}

/// Requests of a slot: one RDMA READ or WRITE, and one response.
const REQUESTS_PER_SLOT: u32 = 2;
/// Receives for requests that are no commands and do not take a CmdSN: pings, task management,
/// texts and a Logout.
const OTHER_REQUESTS: u32 = 8;
/// RDMA READs at the same time. More of them hold up the answers behind them.
const READS_MOST: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fits_a_small_device() {
        let asked = TargetLimits::default();
        for work_requests in 2 * (u32::from(asked.immediate) + 1)..=512 {
            let limits = limits_within(work_requests, asked);
            let sizes = sizes(limits.slots());
            assert!(sizes.sends.max(sizes.receives) <= work_requests);
            assert!((1..=asked.window).contains(&limits.window));
            assert_eq!(limits.immediate, asked.immediate);
        }
        assert_eq!(limits_within(64, asked).window, 24);
    }

    #[test]
    fn a_large_device_keeps_the_window() {
        let asked = TargetLimits::default();
        for work_requests in [272, 16_384, u32::MAX] {
            assert_eq!(limits_within(work_requests, asked).window, asked.window);
        }
    }

    #[test]
    fn a_window_has_at_least_one_command() {
        for work_requests in 0..18 {
            let limits = limits_within(work_requests, TargetLimits::default());
            assert_eq!(limits.window, 1);
        }
    }
}
