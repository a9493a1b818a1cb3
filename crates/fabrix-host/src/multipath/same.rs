//! Whether paths lead to the same disk, and what the disk over several paths promises.

use fabrix_block::Geometry;

use super::PathDisk;
use super::roster::Member;
use crate::{ConnectError, ConnectErrorKind};

/// Checks that two paths lead to the same disk.
///
/// # Errors
/// They do not. The sentence names both and the difference.
pub(super) fn same_disk(one: &dyn PathDisk, other: &dyn PathDisk) -> Result<(), ConnectError> {
    let refused = |what: String| {
        let names = (&one.identity().name, &other.identity().name);
        let sentence = format!("{} and {} are not the same disk: {what}", names.0, names.1);
        ConnectError::new(ConnectErrorKind::Refused, sentence)
    };
    if is_nvme(one) != is_nvme(other) {
        let names = (&one.identity().name, &other.identity().name);
        let sentence = format!(
            "{} and {} are no paths of one disk: all are of NVMe or all of iSCSI",
            names.0, names.1
        );
        return Err(ConnectError::new(ConnectErrorKind::Usage, sentence));
    }
    let (ours, theirs) = (one.identity(), other.identity());
    if ours.uuid != theirs.uuid {
        let (ours, theirs) = (ours.uuid_text(), theirs.uuid_text());
        return Err(refused(format!("their UUIDs are {ours} and {theirs}")));
    }
    if ours.nguid != theirs.nguid {
        return Err(refused("their names (NGUID or NAA) differ".to_owned()));
    }
    let (ours, theirs) = (one.geometry(), other.geometry());
    if ours.block_bytes != theirs.block_bytes {
        let (ours, theirs) = (ours.block_bytes, theirs.block_bytes);
        return Err(refused(format!(
            "their blocks have {ours} and {theirs} bytes"
        )));
    }
    if ours.blocks != theirs.blocks {
        let (ours, theirs) = (ours.blocks, theirs.blocks);
        return Err(refused(format!("they have {ours} and {theirs} blocks")));
    }
    Ok(())
}

fn is_nvme(path: &dyn PathDisk) -> bool {
    path.location().scheme.starts_with("nvme")
}

/// Checks that a path keeps what the users of the disk have been told. `first` is a path of the
/// disk.
///
/// # Errors
/// It does not. The sentence has the properties that are weaker.
pub(super) fn kept_promises(
    promised: &Geometry,
    first: &dyn PathDisk,
    path: &dyn PathDisk,
) -> Result<(), ConnectError> {
    let common = weaker(promised, path.geometry());
    let differs = [
        (
            common.max_transfer_bytes < promised.max_transfer_bytes,
            "shorter transfers",
        ),
        (common.volatile_cache && !promised.volatile_cache, "a cache"),
        (
            common.durability < promised.durability,
            "flushes without effect",
        ),
        (
            common.atomic_write_blocks < promised.atomic_write_blocks,
            "shorter atomic writes",
        ),
        (common.read_only && !promised.read_only, "no writes"),
        (
            common.deallocate < promised.deallocate,
            "weaker deallocation",
        ),
        (
            first.compares_and_writes() && !path.compares_and_writes(),
            "no compare-and-write",
        ),
    ];
    let weaker: Vec<&str> = differs.iter().filter(|it| it.0).map(|it| it.1).collect();
    match weaker.is_empty() {
        true => Ok(()),
        false => Err(ConnectError::new(
            ConnectErrorKind::Unsupported,
            format!(
                "{}: over this path the disk has {}, which its users have not been told: attach it with all its paths",
                path.identity().name,
                weaker.join(", ")
            ),
        )),
    }
}

/// Which paths make a disk read-only that is not read-only over the others.
pub(super) fn read_only_note(members: &[Member]) -> Option<String> {
    let closed = members.iter().filter(|it| it.disk.geometry().read_only);
    let names: Vec<&str> = closed.map(|it| it.disk.identity().name.as_str()).collect();
    let some = !names.is_empty() && names.len() < members.len();
    some.then(|| {
        let names = names.join(" and ");
        format!("the disk is read-only: it is so over {names}, though not over its other paths")
    })
}

/// The promises that all paths make.
pub(super) fn common_geometry(members: &[Member]) -> Geometry {
    let mut all = members.iter().map(|member| member.disk.geometry());
    let first = all.next().expect("a disk has a path").clone();
    all.fold(first, |common, path| weaker(&common, path))
}

fn weaker(common: &Geometry, path: &Geometry) -> Geometry {
    Geometry {
        max_transfer_bytes: common.max_transfer_bytes.min(path.max_transfer_bytes),
        volatile_cache: common.volatile_cache || path.volatile_cache,
        durability: common.durability.min(path.durability),
        atomic_write_blocks: common.atomic_write_blocks.min(path.atomic_write_blocks),
        read_only: common.read_only || path.read_only,
        deallocate: common.deallocate.min(path.deallocate),
        ..common.clone()
    }
}
