//! The requests of a running job allocate nothing, whether they are answered at once or later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fabrix_bench::verify::Verify;
use fabrix_bench::{Config, Job, Rw, run};
use fabrix_block::{Channel, Device, Geometry, Identity, OpenError, Request, Status, Submit};
use fabrix_rt::counting::{CountingAllocator, allocations};
use fabrix_rt::{Completion, Shard};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A disk that stores nothing and counts the allocations between two of its requests.
struct Forgetful {
    geometry: Geometry,
    identity: Identity,
    later: bool,
    allocated: Arc<AtomicU64>,
}

const FIRST: u64 = 10_000;
const LAST: u64 = 60_000;

impl Device for Forgetful {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, _: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let allocated = Arc::clone(&self.allocated);
        Ok(Box::new(ForgetfulChannel {
            later: self.later,
            requests: 0,
            before: 0,
            allocated,
        }))
    }
}

struct ForgetfulChannel {
    later: bool,
    requests: u64,
    before: u64,
    allocated: Arc<AtomicU64>,
}

impl Channel for ForgetfulChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.requests += 1;
        match self.requests {
            FIRST => self.before = allocations(),
            LAST => self.allocated.store(allocations() - self.before, Relaxed),
            _ => {}
        }
        let (token, loan) = (request.token, request.payload.into_loan());
        if !self.later {
            return Submit::Done(Status::Ok, loan);
        }
        shard.complete(
            token,
            Completion {
                result: Status::Ok.to_result(),
                loan,
            },
        );
        Submit::Pending
    }
}

#[test]
fn requests_allocate_nothing() {
    for (later, verify) in [(false, false), (true, false), (false, true), (true, true)] {
        let allocated = Arc::new(AtomicU64::new(u64::MAX));
        let disk: Arc<dyn Device> = Arc::new(Forgetful {
            geometry: Geometry::new(4096, 1024),
            identity: Identity::derive("forgetful", "forgetful", "test disk"),
            later,
            allocated: Arc::clone(&allocated),
        });
        // Verification finds every block of this disk wrong. Reporting that must not allocate
        // either.
        let job = Job {
            rw: Rw::RandMixed,
            iodepth: 8,
            number_ios: Some(LAST + 10),
            runtime: Duration::from_secs(60),
            ramp: Duration::ZERO,
            verify: verify.then(Verify::default),
            ..Job::default()
        };
        run(&[disk], &job, &Config::default(), &mut |_| {}).expect("the job can be run");
        assert_eq!(
            allocated.load(Relaxed),
            0,
            "later: {later}, verify: {verify}"
        );
    }
}
