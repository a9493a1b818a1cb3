//! NVMe/TCP as a link to a controller.

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_transport::{Stream, pass};

use crate::Options;
use crate::tcp::HostMachine;

impl HostMachine for Host {
    type Setup = Arc<Options>;

    fn new(options: Arc<Options>, slots: u16) -> Self {
        let limits = HostLimits {
            max_slots: slots,
            max_r2t: R2TS,
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            fewer_digests: false,
        };
        Self::new(limits, pass::crc32c)
    }

    fn start(stream: &mut Stream<Self>) {
        let (machine, mut out) = stream.speak();
        machine.start(&mut out);
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts connections and did not answer ICReq within {within:?}: is it an NVMe/TCP target?"
        )
    }
}

/// R2Ts of one write that the controller may have outstanding.
const R2TS: u32 = 4;
