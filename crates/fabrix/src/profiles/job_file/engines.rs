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
    let engine = if name.contains(':') { "external" } else { name };
    let is_named = |(engines, _): &&(&[&str], &str)| engines.contains(&engine);
    match FOREIGN.iter().find(is_named) {
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
const FOREIGN: [(&[&str], &str); 13] = [
    (
        &["null", "cpp_null"],
        "leave ioengine out and write filename=null:SIZE",
    ),
    (&["libiscsi"], "name it in filename=iscsi://HOST/IQN/LUN"),
    (
        &["io_uring_cmd"],
        "use the block device of the namespace, or filename=nvme+tcp://HOST/NQN",
    ),
    (
        &["external", "spdk", "xnvme"],
        "name a remote disk in filename=nvme+tcp://HOST/NQN",
    ),
    (
        &["libblkio"],
        "name a file, a block device or a remote disk in filename=",
    ),
    (
        &["nbd"],
        "attach it first, and name the block device in filename=",
    ),
    (
        &["rbd", "rados"],
        "attach an image first (rbd map), and name the block device in filename=",
    ),
    (
        &[
            "gfapi",
            "gfapi_async",
            "nfs",
            "dfs",
            "ime_psync",
            "ime_psyncv",
            "ime_aio",
        ],
        "mount it, and name a file in filename=",
    ),
    (
        &[
            "libpmem",
            "dev-dax",
            "mtd",
            "libcufile",
            "libhipfile",
            "libzbc",
        ],
        "name the file or the block device in filename=",
    ),
    (
        &["net", "netsplice", "rdma"],
        "`fabrix bench net` measures the network",
    ),
    (
        &["http", "libhdfs"],
        "objects have no blocks to be measured",
    ),
    (
        &["cpuio", "exec"],
        "only disks can be measured; run it beside this program",
    ),
    (
        &[
            "dircreate",
            "dirdelete",
            "dirstat",
            "e4defrag",
            "falloc",
            "filecreate",
            "filedelete",
            "filestat",
            "ftruncate",
        ],
        "file systems are not measured, only blocks",
    ),
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
