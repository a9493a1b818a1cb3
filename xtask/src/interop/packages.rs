//! Programs and a kernel from the distribution's packages: what is missing is installed, where we
//! may.
//!
//! Knows apt and where Debian puts things. The kernel is unpacked, never installed: it only runs in
//! a guest.

use crate::process::{command, output, run, works};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What the harness itself calls, and what every guest has.
const ALWAYS: [&str; 6] = [
    "qemu-system-x86_64",
    "busybox",
    "dash",
    "depmod",
    "strip",
    "cpio",
];
/// Packages, and the programs of them that we or scripts may ask for.
const PACKAGES: &str = "
binutils: strip
busybox-static: busybox
ceph-common: ceph rbd rados
ceph-mon: ceph-mon
ceph-osd: ceph-osd
chromium-headless-shell: chromium-headless-shell
cpio: cpio
curl: curl
dash: dash
diffutils: cmp
dmsetup: dmsetup
e2fsprogs: mkfs.ext4 fsck.ext4
ethtool: ethtool
fio: fio
fonts-dejavu-core: DejaVuSans.ttf
g++: c++
git: git
ibverbs-providers: librxe-rdmav34.so
iproute2: ip rdma ss tc
kmod: depmod modprobe
libibverbs1: libibverbs.so.1
libiscsi-bin: iscsi-test-cu iscsi-inq iscsi-ls iscsi-perf iscsi-readcapacity16 iscsi-swp
libnbd-bin: nbdfuse nbdcopy nbdinfo
librdmacm1: librdmacm.so.1
mount: mount losetup
multipath-tools: libchecktur.so libprioalua.so libprioconst.so multipathd
nbd-client: nbd-client
nbdkit: nbdkit
nvme-cli: nvme
open-iscsi: iscsiadm iscsid
qemu-block-extra: block-iscsi.so
qemu-system-x86: qemu-system-x86_64
qemu-utils: qemu-img qemu-io
rdmacm-utils: rping
sg3-utils: sg_compare_and_write sg_get_lba_status sg_inq sg_luns sg_modes sg_opcodes sg_persist
sg3-utils: sg_readcap sg_reset sg_rtpg sg_sync sg_turs sg_unmap sg_verify sg_vpd sg_write_same
sg3-utils: sg_xcopy sgp_dd
tgt: tgtadm tgtd
udev: scsi_id udevadm
util-linux: blkdiscard fstrim setpriv setsid
valgrind: callgrind-amd64-linux valgrind valgrind.bin
";
/// The package that always depends on the newest kernel.
const KERNEL_META: &str = "linux-image-amd64";

/// An unpacked kernel.
pub(super) struct Kernel {
    /// Its release, as `uname -r` says it.
    pub(super) release: String,
    /// The folder in which `boot` and `lib/modules` are.
    pub(super) folder: PathBuf,
}

impl Kernel {
    pub(super) fn image(&self) -> PathBuf {
        let boot = self.folder.join(format!("boot/vmlinuz-{}", self.release));
        match boot.exists() {
            true => boot,
            // From 6.19 on it lies beside its modules.
            false => self.modules().join("vmlinuz"),
        }
    }

    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }
}

/// Where a program is, in the folders where Debian has programs, udev's own, and libraries, drivers
/// and fonts that are loaded by name.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let places = [
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
        "/usr/lib/udev",
        "/usr/libexec/valgrind",
        "/usr/lib/x86_64-linux-gnu/qemu",
        "/usr/lib/multipath",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu/libibverbs",
        "/usr/share/fonts/truetype/dejavu",
    ];
    let paths = places.iter().map(|place| Path::new(place).join(program));
    paths.into_iter().find(|path| path.exists())
}

/// Sees to it that the harness's own programs and those of `tools` are here. The error says what to
/// install.
pub(super) fn require(tools: &[String]) -> Result<(), String> {
    let named = tools.iter().map(String::as_str);
    require_all(&ALWAYS.into_iter().chain(named).collect::<Vec<_>>())
}

/// Sees to it that these programs are here.
pub(super) fn require_all(tools: &[&str]) -> Result<(), String> {
    let missing = || of(tools.iter().copied().filter(|tool| find(tool).is_none()));
    match missing()?[..] {
        [] => return Ok(()),
        ref packages => install(packages)?,
    }
    match missing()?[..] {
        [] => Ok(()),
        ref still => Err(format!(
            "{} did not bring what they should",
            still.join(", ")
        )),
    }
}

/// The packages that have these programs, each once.
pub(super) fn of<'a>(tools: impl Iterator<Item = &'a str>) -> Result<Vec<&'static str>, String> {
    let package = |name| {
        let mut lines = PACKAGES.lines().filter_map(|line| line.split_once(": "));
        let line = lines.find(|(_, programs)| programs.split(' ').any(|program| program == name));
        let (package, _) = line.ok_or_else(|| format!("no package is known to have `{name}`"))?;
        Ok(package)
    };
    let packages: Result<BTreeSet<_>, String> = tools.map(package).collect();
    Ok(packages?.into_iter().collect())
}

fn install(packages: &[&str]) -> Result<(), String> {
    let list = packages.join(" ");
    let by_hand = format!("`apt-get install --no-install-recommends {list}`");
    let is_root = output(command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root || find("apt-get").is_none() {
        return Err(format!("something is missing; as root: {by_hand}"));
    }
    println!("installing {list}");
    run(apt("update").arg("-qq"))?;
    let mut install = apt("install");
    install.args(["-y", "-qq", "--no-install-recommends"]);
    run(install.args(packages))
}

fn apt(verb: &str) -> std::process::Command {
    let mut apt = command("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").arg(verb);
    apt
}

/// A kernel of Debian's, unpacked below `folder`; what was unpacked once is used again.
pub(super) fn kernel(name: &str, folder: &Path) -> Result<Kernel, String> {
    match name {
        "own" => kernel_from(folder, &[]),
        "newer" => kernel_of_backports(folder, None),
        _ => kernel_of_backports(folder, Some(NEWEST)),
    }
}

/// Debian's newest stable release.
const NEWEST: &str = "trixie";

/// Where the machine gets its packages is not changed: apt is told of the backports for this alone,
/// in a folder of its own. `release`: None for this machine's own.
fn kernel_of_backports(folder: &Path, release: Option<&str>) -> Result<Kernel, String> {
    if let Some(kernel) = unpacked(folder) {
        return Ok(kernel);
    }
    let private = folder.with_extension("apt");
    let cannot = |error| format!("cannot write {}: {error}", private.display());
    for needed in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(private.join(needed)).map_err(cannot)?;
    }
    let list = private.join("backports.list");
    fs::write(&list, backports(release)?).map_err(cannot)?;
    let place = |key: &str, name: &str| format!("{key}={}", private.join(name).display());
    let options = [
        place("Dir::Etc::sourcelist", "backports.list"),
        place("Dir::Etc::sourceparts", "none"),
        place("Dir::State::lists", "lists"),
        place("Dir::Cache", "cache"),
    ];
    kernel_from(folder, &options)
}

/// The line that names the backports of a release: they are where this machine's own packages are.
fn backports(release: Option<&str>) -> Result<String, String> {
    let mut targets = command("apt-get");
    targets.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)"]);
    let targets = output(targets.arg("Created-By: Packages"))?;
    let about = fs::read_to_string("/etc/os-release")
        .map_err(|error| format!("cannot read /etc/os-release: {error}"))?;
    let mut lines = about.lines();
    let name = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.unwrap_or_default();
    let own = |line: &str| {
        let (place, of) = line.split_once(' ')?;
        (of == name).then(|| place.to_owned())
    };
    let place = targets.lines().find_map(own);
    let place = place.ok_or_else(|| format!("apt knows no place with packages of `{name}`"))?;
    let signed = match Path::new(KEYRING).exists() {
        true => format!("[signed-by={KEYRING}] "),
        false => String::new(),
    };
    let release = release.unwrap_or(name);
    Ok(format!("deb {signed}{place} {release}-backports main\n"))
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

fn kernel_from(folder: &Path, options: &[String]) -> Result<Kernel, String> {
    if let Some(kernel) = unpacked(folder) {
        return Ok(kernel);
    }
    let with_options = |mut command: std::process::Command| {
        for option in options {
            command.args(["-o", option]);
        }
        command
    };
    let package = match newest_package(with_options(command("apt-cache"))) {
        Ok(package) => package,
        // Without lists nothing is found; as root we can have some.
        Err(_) => {
            run(with_options(apt("update")).arg("-qq"))?;
            newest_package(with_options(command("apt-cache")))?
        }
    };
    println!("unpacking {package}");
    let fresh = folder.with_extension("new");
    let _there_was_none = fs::remove_dir_all(&fresh);
    let cannot = |error| format!("cannot write {}: {error}", fresh.display());
    fs::create_dir_all(&fresh).map_err(cannot)?;
    let depends = output(with_options(command("apt-cache")).args(["depends", &package]))?;
    let mut download = with_options(apt("download"));
    download.args(["-qq", &package]).args(parts(&depends));
    run(download.current_dir(&fresh))?;
    run(command("sh").current_dir(&fresh).args(["-c", UNPACK]))?;
    let _there_was_none = fs::remove_dir_all(folder);
    fs::rename(&fresh, folder).map_err(cannot)?;
    let kernel = unpacked(folder).ok_or_else(|| format!("{package} has no kernel in it"))?;
    run(command("depmod").arg("-b").arg(folder).arg(&kernel.release))?;
    Ok(kernel)
}

/// In what `apt-cache depends` says of a kernel's package: the packages that it really lies in.
/// From 6.19 on it is empty itself.
fn parts(depends: &str) -> Vec<&str> {
    let is_part = |name: &&str| PARTS.iter().any(|part| name.starts_with(part));
    dependencies(depends).filter(is_part).collect()
}

fn dependencies(depends: &str) -> impl Iterator<Item = &str> {
    let lines = depends.lines();
    lines.filter_map(|line| line.trim().strip_prefix("Depends: "))
}

const PARTS: [&str; 3] = ["linux-base-", "linux-binary-", "linux-modules-"];

/// The packages are all that is in the folder where this runs.
const UNPACK: &str =
    "for package in ./*.deb; do dpkg-deb -x $package . && rm $package || exit 1; done
    [ -d lib ] || mv usr/lib lib";

fn newest_package(mut cache: std::process::Command) -> Result<String, String> {
    if !works(command("apt-cache").arg("--version")) {
        return Err("the guest's kernel is a Debian package: apt is needed".to_owned());
    }
    let depends = output(cache.args(["depends", KERNEL_META]))?;
    let image = dependencies(&depends).find(|name| name.starts_with("linux-image-"));
    let image = image.map(str::to_owned);
    image.ok_or_else(|| format!("{KERNEL_META} names no kernel"))
}

/// The kernel that was unpacked before, whole.
fn unpacked(folder: &Path) -> Option<Kernel> {
    let entries = fs::read_dir(folder.join("lib/modules")).ok()?;
    let release = entries.flatten().next()?.file_name().into_string().ok()?;
    let kernel = Kernel {
        release,
        folder: folder.to_owned(),
    };
    kernel.image().exists().then_some(kernel)
}

/// A version line of each package, for the report.
pub(super) fn versions(packages: &[&str]) -> String {
    let mut query = command("dpkg-query");
    query.args(["-W", "-f", "${Package} ${Version}, "]);
    query.args(packages);
    let listed = output(&mut query).unwrap_or_default();
    listed.trim_end_matches(", ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_in_several_packages_is_fetched_whole() {
        let depends = "linux-image-7.3.4-amd64\n  PreDepends: linux-base\n |Depends: dracut\n  \
                       Depends: linux-base-7.3.4-amd64\n  Depends: linux-binary-7.3.4-amd64\n  \
                       Depends: linux-modules-7.3.4-amd64\n";
        let expected =
            ["base", "binary", "modules"].map(|part| format!("linux-{part}-7.3.4-amd64"));
        assert_eq!(parts(depends), expected);
    }
}
