//! Whole runs on memory disks: the requests and the results.

#[path = "../disk/mod.rs"]
#[allow(
    unreachable_pub,
    dead_code,
    reason = "one module for several test programs"
)]
mod disk;
mod endings;
mod load;
mod time;

use std::sync::Arc;

use disk::{Manner, TestDisk};

fn honest(manner: Manner) -> Arc<TestDisk> {
    Arc::new(TestDisk::honest(64, manner))
}
