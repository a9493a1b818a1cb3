//! A memory disk that records its requests.

use std::sync::{Arc, Mutex};

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Request, Submit, open_local,
};
use fabrix_rt::Shard;

pub(super) type Asked = Arc<Mutex<Vec<Operation>>>;

struct Heard {
    disk: Arc<dyn Device>,
    asked: Asked,
}

struct HeardChannel {
    channel: Box<dyn Channel>,
    asked: Asked,
}

pub(super) fn disk() -> (Arc<dyn Device>, Asked) {
    let disk = open_local(&"ram:8M".parse().expect("a disk's words")).expect("a disk");
    let asked = Asked::default();
    let heard = Heard {
        disk,
        asked: Arc::clone(&asked),
    };
    (Arc::new(heard), asked)
}

/// The last recorded operation.
pub(super) fn last(asked: &Asked) -> Operation {
    let asked = asked.lock().expect("nobody panics with it");
    *asked.last().expect("it was asked")
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
            asked: Arc::clone(&self.asked),
        }))
    }
}

impl Channel for HeardChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let mut asked = self.asked.lock().expect("nobody panics with it");
        asked.push(request.operation);
        drop(asked);
        self.channel.submit(shard, request)
    }
}
