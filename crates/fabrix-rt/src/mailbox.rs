//! The only way from one shard to another: bounded mailboxes, and a bell that is rung only for who
//! sleeps.
//!
//! Sending does not enter the kernel as long as the receiver is busy or spinning. No wake-up is
//! lost: the sender first says that there is something and then looks whether the receiver sleeps;
//! the receiver first says that it sleeps and then looks whether there is something. Both in the
//! one total order of SeqCst, so at least one sees.

use std::any::Any;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::{Shard, TaskId, sys};

/// What travels between shards.
pub(crate) enum Message {
    Run(Box<dyn FnOnce(&mut Shard) + Send>),
    Send(TaskId, Box<dyn Any + Send>),
}

/// The receiving end.
pub(crate) struct Mailbox {
    messages: Receiver<Message>,
    remote: Remote,
}

/// Reaches a shard from any thread.
#[derive(Clone)]
pub struct Remote {
    messages: SyncSender<Message>,
    bell: Arc<Bell>,
}

/// The mailbox is full, or its shard has ended: nothing was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Wakes a shard that waits in the kernel.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    asleep: AtomicBool,
    stop: AtomicBool,
    event: Arc<File>,
}

impl Remote {
    /// Runs something on the shard's thread, within its next turn.
    pub fn run(&self, f: Box<dyn FnOnce(&mut Shard) + Send>) -> Result<(), Full> {
        self.post(Message::Run(f))
    }

    /// Gives a message to a task of the shard; dropped when the task is gone by then.
    pub fn send(&self, task: TaskId, message: Box<dyn Any + Send>) -> Result<(), Full> {
        self.post(Message::Send(task, message))
    }

    /// Ends the shard's `run`, even when its mailbox is full.
    pub fn stop(&self) {
        self.bell.stop.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn post(&self, message: Message) -> Result<(), Full> {
        self.messages.try_send(message).map_err(|_| Full)?;
        self.bell.ring();
        Ok(())
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the shard's mailbox is full, or the shard has ended")
    }
}

impl std::error::Error for Full {}

impl Mailbox {
    pub(crate) fn new(messages: usize) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(messages.max(1));
        let bell = Bell {
            rung: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            event: Arc::new(sys::file::event()?),
        };
        Ok(Self {
            messages: receiver,
            remote: Remote {
                messages: sender,
                bell: Arc::new(bell),
            },
        })
    }

    pub(crate) fn remote(&self) -> Remote {
        self.remote.clone()
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.remote.bell
    }

    /// Whether anything may have come since the last time; asked once a turn, before taking.
    pub(crate) fn was_rung(&self) -> bool {
        self.bell().rung.load(Ordering::Relaxed) && self.bell().rung.swap(false, Ordering::SeqCst)
    }

    /// Whether somebody asked the shard to stop, once.
    pub(crate) fn take_stop(&self) -> bool {
        self.bell().stop.swap(false, Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Message> {
        self.messages.try_recv().ok()
    }

    /// More is left than one turn takes: look again in the next.
    pub(crate) fn keep_ringing(&self) {
        self.bell().rung.store(true, Ordering::SeqCst);
    }
}

impl Bell {
    /// Whether something has come: a driver that spins looks here, too.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Says that the shard is about to wait in the kernel. False: something has come, do not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.rung.load(Ordering::SeqCst) {
            self.wake_up();
            return false;
        }
        true
    }

    /// Says that the shard is awake again.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// The eventfd that becomes readable when a sleeping shard is rung.
    pub(crate) fn event(&self) -> &Arc<File> {
        &self.event
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // It fails only when the counter would overflow, and then it is readable anyway.
            let _ = (&*self.event).write(&1u64.to_ne_bytes());
        }
    }
}
