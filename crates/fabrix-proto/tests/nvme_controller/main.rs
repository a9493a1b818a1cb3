//! The life of a controller: properties as Linux uses them, keep-alive by a virtual clock, events,
//! features, abort.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod ana;
mod commands;
mod events;
mod features;
mod instances;
mod life;
#[path = "../nvme_common/mod.rs"]
mod nvme_common;

use fabrix_proto::nvme::admin::GetLogPage;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::spec::SubmissionEntry;
use zerocopy::little_endian::U32;

const SECOND: u64 = 1_000_000_000;
const CC_DISABLED: u64 = 0x0046_0000;

fn log(page: LogId, offset: u64, bytes: u64, retain_event: bool) -> SubmissionEntry {
    SubmissionEntry::get_log_page(GetLogPage {
        page,
        nsid: u32::MAX,
        offset,
        bytes,
        specific: 0,
        retain_event,
        command_set: 0,
    })
}

fn get(feature: FeatureId, select: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::get_features(feature, 0);
    entry.cdw10 = U32::new(u32::from(feature.0) | select << 8);
    entry
}

fn set(feature: FeatureId, value: u32) -> SubmissionEntry {
    SubmissionEntry::set_features(feature, value)
}
