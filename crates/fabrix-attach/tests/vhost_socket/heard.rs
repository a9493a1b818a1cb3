//! A memory disk that records its requests.

use std::sync::{Arc, Mutex};

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Request, Submit, open_local,
};
use fabrix_rt::Shard;

pub(super) type Operations = Arc<Mutex<Vec<Operation>>>;

struct Heard {
    disk: Arc<dyn Device>,
    operations: Operations,
}

struct HeardChannel {
    channel: Box<dyn Channel>,
    operations: Operations,
}

pub(super) fn disk() -> (Arc<dyn Device>, Operations) {
    let disk = open_local(&"ram:8M".parse().expect("a disk's words")).expect("a disk");
    let operations = Operations::default();
    let heard = Heard {
        disk,
        operations: Arc::clone(&operations),
    };
    (Arc::new(heard), operations)
}

/// The last recorded operation.
pub(super) fn last(operations: &Operations) -> Operation {
    let operations = operations.lock().expect("nobody panics with it");
    *operations.last().expect("it was asked")
}

impl Device for Heard {
    fn geometry(&self) -> &Geometry {
        self.disk.geometry()
    }

    fn identity(&self) -> &Identity {
        self.disk.identity()
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(Box::new(HeardChannel {
            channel: self.disk.open(shard)?,
            operations: Arc::clone(&self.operations),
        }))
    }
}

impl Channel for HeardChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let mut operations = self.operations.lock().expect("nobody panics with it");
        operations.push(request.operation);
        drop(operations);
        self.channel.submit(shard, request)
    }
}
