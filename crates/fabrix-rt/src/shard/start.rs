//! What a shard is made with, which driver it gets, and why it could not be made.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::SpinPolicy;
use crate::driver::{Driver, EpollDriver, UringDriver};
use crate::engine::{self, Engine, Refused};
use crate::mailbox::Mailbox;
use crate::spin::Spin;
use crate::sys::entry::{Long, Short};

/// What a shard is made with.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// Its number, for its owner's purposes.
    pub id: usize,
    /// The way into the kernel.
    pub engine: Engine,
    /// Most bytes of buffers; mapped when needed.
    pub arena_bytes: usize,
    /// When to spin instead of sleeping.
    pub spin: SpinPolicy,
    /// Operations that one system call submits; more in a turn cost more calls. Rounded up to a
    /// power of two.
    pub entries: u32,
    /// Messages that may wait from other shards.
    pub mailbox: usize,
    /// Entries of the ring are twice as long, which [`Op::Exchange`](crate::Op::Exchange) needs and
    /// nothing else does.
    pub exchanges: bool,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            id: 0,
            engine: Engine::Auto,
            arena_bytes: 1 << 30,
            spin: SpinPolicy::default(),
            entries: 1024,
            mailbox: 1024,
            exchanges: false,
        }
    }
}

/// Why a shard could not be made.
#[derive(Debug)]
pub enum StartError {
    /// io_uring was insisted on and is not to be had.
    Refused(Refused),
    /// The system had no more of something.
    System {
        /// What was being made.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "{refused}"),
            Self::System { what, source } => write!(f, "making {what}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::System { source, .. } => Some(source),
        }
    }
}

type Chosen = (Box<dyn Driver>, Engine, Option<Refused>);

pub(super) fn choose_driver(config: &ShardConfig, mailbox: &Mailbox) -> Result<Chosen, StartError> {
    let spin = || Spin::new(config.spin);
    let epoll = || -> Result<Box<dyn Driver>, StartError> {
        let driver = EpollDriver::new(spin(), Arc::clone(mailbox.bell()));
        Ok(Box::new(
            driver.map_err(system("the epoll set of a shard"))?,
        ))
    };
    if config.engine == Engine::Epoll {
        return Ok((epoll()?, Engine::Epoll, None));
    }
    let (entries, bell) = (config.entries, Arc::clone(mailbox.bell()));
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

pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}
