//! `--as kernel`: the kernel's own NVMe/TCP host accesses the disk. Fabrix only requests the
//! connection, as `nvme connect` does.
//!
//! No Fabrix process remains. A record names the controller, and sysfs shows its state. Our own
//! host first connects to the disk, because its errors explain more.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_block::spec::{Disk, Remote};
use fabrix_block::{Device, Spec};
use fabrix_host::{Options, Transport, host_text};
use fabrix_rt::process::is_root;
use serde_json::{Value, json};

use super::in_use::in_use;
use super::records::leftovers::CONTROLLERS;
use super::records::{Record, Records};
use super::size::{self, SECTOR_BYTES};
use crate::args::{AttachArgs, FrontEnd};
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::host_names::uuid_text;
use crate::machine::read;

/// The device for connection requests.
const FABRICS: &str = "/dev/nvme-fabrics";
const DISKS: &str = "/sys/block";
/// Time limit of the kernel for showing the disk of a new controller.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Attaches a disk and returns its state.
pub(crate) fn attach(args: &AttachArgs) -> Result<Value, Failure> {
    is_possible(args)?;
    let records = Records::open()?;
    let mut claim = records.claim(args.name.as_deref())?;
    let scope = format!("attach/{}", claim.name);
    let opener = Opener::new(&args.remote, args.engine.engine, &scope)?.over_one_path();
    let disk = opener.open(&args.uri, args.read_only)?;
    records.refuse_twice(&claim.name, &args.uri, &*disk)?;
    let (remote, address) = remote_address(&*disk)?;
    let controller = connect_on_new_thread(&words(args, opener.options(), &remote, address))?;
    let nsid = remote.nsid.unwrap_or(1);
    let nqn = remote.nqn.unwrap_or_default();
    let found = wait_for_disk(&nqn, nsid);
    let written = found.and_then(|device| {
        size::is(&device, disk.geometry().bytes())?;
        let record = Record {
            subsystem: Some(nqn),
            controller: Some(controller.clone()),
            pid: 0,
            ..Record::new(&claim, (FrontEnd::Kernel, device), (&args.uri, &*disk))
        };
        if let Some(file) = &args.devid_file {
            record.write_device(file)?;
        }
        claim.record_file().write(&record)?;
        Ok(record)
    });
    match written {
        Ok(record) => {
            claim.keep(true);
            Ok(state(&record))
        }
        Err(failure) => {
            let _it_goes_anyhow = delete(&controller);
            Err(failure)
        }
    }
}

fn is_possible(args: &AttachArgs) -> Result<(), Failure> {
    if args.foreground || args.socket.is_some() || args.listen.is_some() || args.read_only {
        let sentence = "--as kernel leaves nothing running: --foreground, --socket, --listen and --read-only are for \
                        others";
        return Err(Failure::usage(sentence));
    }
    if !is_root() {
        return Err(Failure::usage(
            "--as kernel needs root, as `nvme connect` does",
        ));
    }
    // Otherwise the user would load a module only to learn that the kernel cannot access this disk.
    if !args.uri.starts_with("nvme+tcp:") {
        return Err(over_rdma(&args.uri).unwrap_or_else(no_disk_of_the_kernels));
    }
    match OpenOptions::new().read(true).write(true).open(FABRICS) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::usage(format!(
            "{FABRICS}: {error}: the kernel has no NVMe/TCP host here; load it (modprobe nvme-tcp), or leave out --as"
        ))),
    }
}

/// Address of the disk as found by our host.
fn remote_address(disk: &dyn Device) -> Result<(Remote, SocketAddr), Failure> {
    let spec = Spec::parse(&disk.identity().name).map_err(|_| no_disk_of_the_kernels())?;
    let Disk::Remote(remote) = spec.disk else {
        return Err(no_disk_of_the_kernels());
    };
    if remote.scheme != "nvme+tcp" || remote.nqn.is_none() {
        return Err(no_disk_of_the_kernels());
    }
    let port = remote.port.unwrap_or(fabrix_host::DEFAULT_PORT);
    let found = (remote.host.as_str(), port).to_socket_addrs();
    let address = found.ok().and_then(|mut found| found.next());
    Ok((remote, address.ok_or_else(no_disk_of_the_kernels)?))
}

fn no_disk_of_the_kernels() -> Failure {
    Failure::usage("--as kernel is for an nvme+tcp:// disk without options of ours")
}

/// The command that attaches a disk over NVMe/RDMA to the kernel. None: another disk.
fn over_rdma(uri: &str) -> Option<Failure> {
    let Disk::Remote(remote) = Spec::parse(uri).ok()?.disk else {
        return None;
    };
    let (host, nqn) = (remote.host, remote.nqn.as_deref().unwrap_or("NQN"));
    let port = remote.port.unwrap_or(fabrix_host::DEFAULT_PORT);
    (remote.scheme == Transport::Rdma.scheme()).then(|| {
        Failure::usage(format!(
            "--as kernel is for an nvme+tcp:// disk; for this one write \
             nvme connect -t rdma -a {host} -s {port} -n {nqn}, or leave out --as"
        ))
    })
}

/// The kernel's connection parameters, in the words of `nvme connect`.
fn words(args: &AttachArgs, options: &Options, remote: &Remote, address: SocketAddr) -> String {
    let given = &args.remote;
    let seconds = |time: Duration| time.as_secs_f64().ceil();
    let nqn = remote.nqn.as_deref().unwrap_or_default();
    let mut words = format!(
        "transport=tcp,traddr={},trsvcid={},nqn={nqn},hostnqn={},hostid={},nr_io_queues={},queue_size={},\
         keep_alive_tmo={}",
        host_text(address),
        address.port(),
        options.host.as_str(),
        uuid_text(options.host_id),
        given.nr_io_queues,
        given.queue_size.max(QUEUE_SIZE_MIN),
        seconds(given.keep_alive_tmo),
    );
    let limit = |limit: Option<Duration>| limit.map_or(-1.0, seconds);
    words += &format!(",ctrl_loss_tmo={}", limit(given.ctrl_loss_tmo.0));
    words += &format!(",fast_io_fail_tmo={}", limit(given.fast_io_fail_tmo.0));
    if let Some(delay) = given.reconnect_delay {
        words += &format!(",reconnect_delay={}", seconds(delay).max(1.0));
    }
    if let Some(local) = given.host_traddr {
        words += &format!(",host_traddr={local}");
    }
    for (word, wanted) in [
        ("hdr_digest", given.hdr_digest),
        ("data_digest", given.data_digest),
    ] {
        if wanted {
            words = format!("{words},{word}");
        }
    }
    words
}

/// Requests a controller on a new thread that has never had an io_uring. The kernel interrupts a
/// thread some time after its ring was closed. Its NVMe host would then abandon the connection
/// halfway, log an error, and connect again.
fn connect_on_new_thread(words: &str) -> Result<String, Failure> {
    let joined = thread::scope(|scope| scope.spawn(|| connect(words)).join());
    joined.unwrap_or_else(|_| {
        Err(Failure::io(
            "asking the kernel for a controller has panicked",
        ))
    })
}

/// Requests a controller and returns its name. Source: the kernel's drivers/nvme/host/fabrics.c,
/// formats of request and answer.
fn connect(words: &str) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| {
        let hint = match error.raw_os_error() {
            Some(EALREADY) => {
                ": the kernel is connected there already; `nvme list-subsys` shows it"
            }
            _ => "; `dmesg` says more",
        };
        Failure::new(
            Kind::Connect,
            format!("the kernel does not connect: {error}{hint}"),
        )
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(FABRICS)
        .map_err(cannot)?;
    file.write_all(words.as_bytes()).map_err(cannot)?;
    let mut answer = [0; 256];
    let bytes = file.read(&mut answer).map_err(cannot)?;
    let answer = String::from_utf8_lossy(&answer[..bytes]);
    let instance = answer
        .split(',')
        .find_map(|word| word.trim().strip_prefix("instance="));
    let instance = instance.and_then(|number| number.parse::<u32>().ok());
    let instance =
        instance.ok_or_else(|| Failure::io(format!("{FABRICS} answers `{}`", answer.trim())))?;
    Ok(format!("nvme{instance}"))
}

fn wait_for_disk(nqn: &str, nsid: u32) -> Result<PathBuf, Failure> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(device) = disk_of(nqn, nsid) {
            return Ok(device);
        }
        if Instant::now() > until {
            return Err(Failure::io(format!(
                "the kernel is connected and shows no disk for namespace {nsid}; `dmesg` says why"
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The block device of a namespace.
fn disk_of(nqn: &str, nsid: u32) -> Option<PathBuf> {
    let disks = fs::read_dir(DISKS).ok()?;
    disks.flatten().find_map(|disk| {
        let folder = disk.path();
        let name = disk.file_name();
        let is_it = name.to_string_lossy().starts_with("nvme")
            && read(folder.join("nsid")) == Some(nsid.to_string())
            && read(folder.join("device/subsysnqn")).as_deref() == Some(nqn);
        // sysfs also lists the single paths of a multipath disk. They have no device node.
        let device = Path::new("/dev").join(name);
        (is_it && device.exists()).then_some(device)
    })
}

/// The record with the kernel's state and statistics.
pub(crate) fn state(record: &Record) -> Value {
    let mut all = serde_json::to_value(record).unwrap_or_default();
    let controller = Path::new(CONTROLLERS).join(record.controller.as_deref().unwrap_or_default());
    let state = read(controller.join("state")).unwrap_or_default();
    let word = match state.as_str() {
        "live" => "attached",
        "new" | "connecting" | "resetting" => "reconnecting",
        "" => "dead",
        _ => "lost",
    };
    let address = read(controller.join("address")).unwrap_or_default();
    all["state"] = json!(word);
    all["paths"] = json!([{ "address": address, "state": state }]);
    let Some(name) = record.device.file_name() else {
        return all;
    };
    let folder = Path::new(DISKS).join(name);
    if let Ok(bytes) = size::of(&record.device) {
        all["size_bytes"] = json!(bytes);
    }
    let sums = read(folder.join("stat")).unwrap_or_default();
    let sums: Vec<u64> = sums
        .split_whitespace()
        .map(|sum| sum.parse().unwrap_or(0))
        .collect();
    for (kind, at) in [("read", 0), ("write", 4)] {
        if let (Some(requests), Some(sectors)) = (sums.get(at), sums.get(at + 2)) {
            all[kind] = json!({ "requests": requests, "bytes": sectors * SECTOR_BYTES });
        }
    }
    all
}

/// Detaches a disk. Without `force` it fails if the disk is in use.
pub(crate) fn detach(record: &Record, force: bool) -> Result<(), Failure> {
    let claimed = OpenOptions::new()
        .read(true)
        .custom_flags(O_EXCL)
        .open(&record.device);
    match claimed {
        Err(error) if error.kind() == ErrorKind::ResourceBusy && !force => {
            return Err(in_use(
                &record.device,
                "it is mounted, or another driver has claimed it",
            ));
        }
        Ok(device) if !force => {
            device.sync_all().map_err(Failure::at(&record.device))?;
        }
        _ => {}
    }
    delete(record.controller.as_deref().unwrap_or_default())
}

fn delete(controller: &str) -> Result<(), Failure> {
    let path = Path::new(CONTROLLERS)
        .join(controller)
        .join("delete_controller");
    let deleted = File::options()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(b"1"));
    match deleted {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::at(&path)(error)),
        _ => Ok(()),
    }
}

const O_EXCL: i32 = fabrix_rt::errno::O_EXCL;
const EALREADY: i32 = 114;
/// Shortest queue that the kernel accepts.
const QUEUE_SIZE_MIN: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_over_rdma_is_refused_with_the_command_that_attaches_it() {
        for (uri, command) in [
            (
                "nvme+rdma://192.0.2.1/nqn.2026-01.io.fabrix:disks/1",
                "-a 192.0.2.1 -s 4420 -n nqn.2026-01.io.fabrix:disks,",
            ),
            (
                "nvme+rdma://[2001:db8::1]:4421",
                "-a 2001:db8::1 -s 4421 -n NQN,",
            ),
        ] {
            let said = over_rdma(uri).expect(uri).to_string();
            assert!(
                said.contains(&format!("nvme connect -t rdma {command}")),
                "{said}"
            );
        }
        assert!(over_rdma("iser://192.0.2.1").is_none());
    }
}
