//! Which driver a shard gets on Linux.

use std::io;
use std::sync::Arc;

use super::driver::{EpollDriver, UringDriver};
use super::engine::{self, Engine, Refused};
use crate::bell::Bell;
use crate::driver::Driver;
use crate::shard::system;
use crate::spin::Spin;
use crate::sys::entry::{Long, Short};
use crate::{Shard, ShardConfig, StartError};

impl Shard {
    /// Makes a shard on the thread that will run it.
    ///
    /// Errors: the config demands io_uring, which cannot be used; no descriptor or no memory is
    /// left.
    pub fn new(config: ShardConfig) -> Result<Self, StartError> {
        let bell = Arc::new(Bell::new().map_err(system("the mailbox of a shard"))?);
        let (driver, engine, refused) = choose_driver(&config, &bell)?;
        Self::build(&config, driver, bell, (engine, refused))
    }
}

type Chosen = (Box<dyn Driver>, Engine, Option<Refused>);

/// The driver that the config asks for, or epoll in its place, with the reason.
fn choose_driver(config: &ShardConfig, bell: &Arc<Bell>) -> Result<Chosen, StartError> {
    let spin = || Spin::new(config.spin);
    let epoll = || -> Result<Box<dyn Driver>, StartError> {
        let driver = EpollDriver::new(spin(), Arc::clone(bell));
        Ok(Box::new(
            driver.map_err(system("the epoll set of a shard"))?,
        ))
    };
    if config.engine == Engine::Epoll {
        return Ok((epoll()?, Engine::Epoll, None));
    }
    let (entries, bell) = (config.entries, Arc::clone(bell));
    let ring: io::Result<Box<dyn Driver>> = match config.exchanges {
        false => UringDriver::<Short>::new(entries, spin(), bell).map(|ring| Box::new(ring) as _),
        true => UringDriver::<Long>::new(entries, spin(), bell).map(|ring| Box::new(ring) as _),
    };
    match ring {
        Ok(driver) => Ok((driver, Engine::IoUring, None)),
        Err(error) if config.engine == Engine::IoUring => {
            Err(StartError::Refused(engine::explain(&error)))
        }
        Err(error) => Ok((epoll()?, Engine::Epoll, Some(engine::explain(&error)))),
    }
}
