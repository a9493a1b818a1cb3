//! fio's I/O engines. Ours is chosen by `--engine`, so a name only tells whether the engine is
//! synchronous, or means another kind of disk.

/// Whether an engine has one request in flight, whatever `iodepth` says.
///
/// Errors: a sentence for engines of other disks, and for unknown ones.
pub(super) fn is_synchronous(name: &str) -> Result<bool, String> {
    if SYNCHRONOUS.contains(&name) {
        return Ok(true);
    }
    if ASYNCHRONOUS.contains(&name) {
        return Ok(false);
    }
    let named = |(engine, _): &&(&str, &str)| {
        name == *engine || (*engine == "external" && name.contains(':'))
    };
    match FOREIGN.iter().find(named) {
        Some((_, instead)) => Err(format!("`{name}` is another kind of disk; {instead}")),
        None => Err(format!(
            "`{name}` is not an engine of fio that is known here; write libaio, io_uring or psync"
        )),
    }
}

const SYNCHRONOUS: [&str; 8] = [
    "sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "sg",
];
const ASYNCHRONOUS: [&str; 4] = ["libaio", "io_uring", "posixaio", "windowsaio"];

/// Engines that mean another kind of disk, with the disk to name instead.
const FOREIGN: [(&str, &str); 19] = [
    ("null", "name it in filename=null:SIZE"),
    ("libiscsi", "name it in filename=iscsi://HOST/IQN/LUN"),
    (
        "io_uring_cmd",
        "use the block device of the namespace, or filename=nvme+tcp://HOST/NQN",
    ),
    (
        "external",
        "name a remote disk in filename=nvme+tcp://HOST/NQN",
    ),
    ("spdk", "name a remote disk in filename=nvme+tcp://HOST/NQN"),
    (
        "xnvme",
        "name a remote disk in filename=nvme+tcp://HOST/NQN",
    ),
    (
        "libblkio",
        "name a file, a block device or a remote disk in filename=",
    ),
    (
        "nbd",
        "attach it first, and name the block device in filename=",
    ),
    (
        "rbd",
        "attach it first (rbd map), and name the block device in filename=",
    ),
    (
        "rados",
        "attach an image first (rbd map), and name the block device in filename=",
    ),
    ("http", "only block devices can be measured"),
    ("gfapi", "mount it, and name a file in filename="),
    ("libhdfs", "only block devices can be measured"),
    ("libpmem", "name the file or the block device in filename="),
    ("dev-dax", "name a block device in filename="),
    ("mtd", "name a block device in filename="),
    ("net", "`fabrix bench net` measures the network"),
    ("rdma", "`fabrix bench net` measures the network"),
    ("cpuio", "only disks can be measured"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_synchronous_or_another_disk_or_unknown() {
        assert_eq!(is_synchronous("psync"), Ok(true));
        assert_eq!(is_synchronous("io_uring"), Ok(false));
        for (name, part) in [
            ("null", "null:SIZE"),
            ("external:/x/spdk_nvme", "nvme+tcp://"),
            ("doesnotexist", "not an engine"),
        ] {
            let error = is_synchronous(name).expect_err(name);
            assert!(error.contains(part), "{error}");
        }
    }
}
