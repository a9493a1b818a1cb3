//! iSCSI over TCP as a link to a target.

use std::time::Duration;

use fabrix_proto::iscsi::initiator::{Initiator, LoginConfig};
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_transport::{Stream, pass};

use crate::tcp::HostMachine;

impl HostMachine for Tcp<Initiator> {
    type Setup = LoginConfig;

    fn new(login: LoginConfig, slots: u16) -> Self {
        Self::new(Initiator::new(slots, login), pass::crc32c)
    }

    fn start(stream: &mut Stream<Self>) {
        let (initiator, mut out) = fabrix_proto::iscsi::framing::Carrier::speak(stream);
        initiator.start(&mut out);
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts connections and did not let us log in within {within:?}: is it an iSCSI target?"
        )
    }
}
