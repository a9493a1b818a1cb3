//! Mailboxes: bounded queues of messages, the only way from one shard to another.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Shard;
use crate::TaskId;
use crate::bell::Bell;

/// A message between shards.
pub(super) enum Message {
    Run(Box<dyn FnOnce(&mut Shard) + Send>),
    Send(TaskId, Box<dyn Any + Send>),
}

/// The receiving end of a shard's messages.
pub(super) struct Mailbox {
    messages: Receiver<Message>,
    remote: Remote,
}

/// Sends messages to a shard from any thread.
#[derive(Clone)]
pub struct Remote {
    messages: SyncSender<Message>,
    bell: Arc<Bell>,
}

/// The message was not sent: the mailbox is full, or its shard has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Remote {
    /// Runs a function on the shard's thread, within the next turn.
    pub fn run(&self, f: Box<dyn FnOnce(&mut Shard) + Send>) -> Result<(), Full> {
        self.post(Message::Run(f))
    }

    /// Sends a message to a task of the shard. The message is dropped if the task has been removed.
    pub fn send(&self, task: TaskId, message: Box<dyn Any + Send>) -> Result<(), Full> {
        self.post(Message::Send(task, message))
    }

    /// Ends [`Shard::run`], even when the mailbox is full.
    pub fn stop(&self) {
        self.bell.ask_to_stop();
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
    /// A mailbox for at most `messages` at once, and for one at least.
    pub(super) fn new(messages: usize, bell: Arc<Bell>) -> Self {
        let (sender, receiver) = sync_channel(messages.max(1));
        Self {
            messages: receiver,
            remote: Remote {
                messages: sender,
                bell,
            },
        }
    }

    pub(super) fn remote(&self) -> Remote {
        self.remote.clone()
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.remote.bell
    }

    pub(super) fn take(&self) -> Option<Message> {
        self.messages.try_recv().ok()
    }
}
