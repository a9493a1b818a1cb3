//! The task of a shard that takes orders from other shards: to adopt connections, and to change the
//! exports.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::{Completion, Shard, Task, TaskId};

use crate::connection::Accepted;
use crate::local::Local;
use crate::registry::ConnectionOrder;
use crate::shared::{Arrival, Carrier, Order, Shared};
use crate::{iscsi, nvme};

/// The task that takes orders from other shards.
pub(crate) struct ConfigTask {
    local: Rc<Local>,
}

impl ConfigTask {
    /// Sets up the target's part on `shard`.
    pub(crate) fn install(shard: &mut Shard, index: usize, shared: Arc<Shared>) -> TaskId {
        let local = Rc::new(Local::new(shard, index, shared));
        shard.add(Rc::new(RefCell::new(Self { local })))
    }

    /// Serves the present snapshot first, in case a full mailbox has dropped the order to do so.
    fn adopt(&self, shard: &mut Shard, arrival: Arrival) {
        self.serve(shard);
        let Arrival {
            carrier,
            peer,
            listener,
            unauthenticated_peer,
            load,
        } = arrival;
        let accepted = Accepted {
            peer,
            listener,
            address: None,
            unauthenticated_peer: Some(unauthenticated_peer),
            load: Some(load),
        };
        match carrier {
            Carrier::NvmeTcp(socket) => nvme::tcp::adopt(shard, socket, accepted, &self.local),
            Carrier::Iscsi(socket) => iscsi::tcp::adopt(shard, socket, accepted, &self.local),
            Carrier::NvmeRdma(request, slots) => {
                nvme::rdma::adopt(shard, (*request, slots), accepted, &self.local)
            }
            Carrier::Iser(request) => iscsi::rdma::adopt(shard, *request, accepted, &self.local),
        }
    }

    fn serve(&self, shard: &mut Shard) {
        if self.local.serve() {
            self.order_all(shard, &ConnectionOrder::Served);
        }
    }

    fn announce(&self, shard: &mut Shard) {
        if self.local.announce() {
            self.order_all(shard, &ConnectionOrder::Announced);
        }
    }

    /// Gives an order to every connection of this shard.
    fn order_all(&self, shard: &mut Shard, order: &ConnectionOrder) {
        let connections = self.local.connections.borrow().clone();
        for id in connections {
            if let Some(task) = shard.task(id) {
                task.borrow_mut().message(shard, Box::new(order.clone()));
            }
        }
    }
}

/// Why all connections end.
const GIVEN_UP: &str = "the disks were given up";

impl Task for ConfigTask {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, _completion: Completion) {
        unreachable!("the config task starts no operations");
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        match message.downcast::<Order>().map(|order| *order) {
            // The connection was on its way when the drain began.
            Ok(Order::Adopt(..)) if self.local.shared.is_draining() => {
                self.local.shared.disconnected()
            }
            Ok(Order::Adopt(arrival)) => self.adopt(shard, arrival),
            Ok(Order::Serve(_done)) => self.serve(shard),
            Ok(Order::Announce(_done)) => self.announce(shard),
            Ok(Order::AwaitRefused(done)) => {
                self.order_all(shard, &ConnectionOrder::AwaitRefused(done))
            }
            Ok(Order::Drain) => self.order_all(shard, &ConnectionOrder::Drain),
            Ok(Order::Disconnect(_done)) => {
                self.order_all(shard, &ConnectionOrder::Close(GIVEN_UP))
            }
            Err(_) => debug_assert!(false, "the config task takes orders only"),
        }
    }
}
