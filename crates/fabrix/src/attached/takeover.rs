//! Takeover of ublk devices, which survive the process that served them. Finds the record of such a
//! device and checks that its users wait for the same disk.

use fabrix_block::spec::without_secrets;

use super::records::leftovers::waits;
use super::records::{Found, Record, Records};
use crate::args::{AttachArgs, FrontEnd};
use crate::failure::Failure;

/// The record to take over: that of the given name, or without a name that of the same disk.
///
/// # Errors
/// The name belongs to a device whose users wait for another disk. This disk must not replace it.
pub(crate) fn find(records: &Records, args: &AttachArgs) -> Result<Option<Record>, Failure> {
    let waits = |found: &Found| !found.alive && waits(&found.record);
    let mut left = records.all()?.into_iter().filter(waits);
    let Some(name) = &args.name else {
        let found = left.find(|found| is_meant(&found.record, args));
        return Ok(found.map(|found| found.record));
    };
    match left.find(|found| found.record.name == *name) {
        None => Ok(None),
        Some(found) if is_meant(&found.record, args) => Ok(Some(found.record)),
        Some(found) => Err(Failure::usage(format!(
            "the name {name} belongs to {}, whose process has died and whose users wait for {}: attach that to go on, \
             or `fabrix detach {name}`",
            found.record.device.display(),
            found.record.uri
        ))),
    }
}

fn is_meant(record: &Record, args: &AttachArgs) -> bool {
    record.uri == without_secrets(&args.uri)
        && matches!(args.front_end, FrontEnd::Auto | FrontEnd::Ublk)
        && args.socket.is_none()
        && args.listen.is_none()
}
