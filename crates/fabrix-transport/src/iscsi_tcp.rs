//! iSCSI over TCP: a stream, and the machine on it, carry the PDUs of an endpoint.

use fabrix_proto::iscsi::framing::{Carrier, Endpoint, Framing};
use fabrix_proto::iscsi::tcp::Tcp;

use crate::Stream;

impl<E: Endpoint> Carrier for Stream<Tcp<E>> {
    type Endpoint = E;

    #[inline(always)]
    fn endpoint(&self) -> &E {
        self.machine().endpoint()
    }

    #[inline(always)]
    fn speak(&mut self) -> (&mut E, impl Framing) {
        let (machine, out) = self.speak();
        machine.speak(out)
    }

    /// The data digest would be computed over pages that others may write meanwhile.
    fn needs_buffers(&self) -> bool {
        self.endpoint().digests().data
    }
}
