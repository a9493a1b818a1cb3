//! Use of the kernel's block devices during a command, as fio's `disk_util`.
//!
//! The devices are those of the command's disks: block devices, and the devices below the file
//! systems of files. The numbers are differences of the kernel's counters. Memory and remote disks
//! have no device here. Source: the kernel's documentation, "Block layer statistics in
//! /sys/block/<dev>/stat".

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fabrix_block::Spec;
use fabrix_block::spec::Disk;
use serde_json::{Value, json};

use crate::disks::kernel_folder;
use crate::machine::read;

/// The devices of a command with their counters.
pub(crate) struct DiskUtil {
    devices: Vec<Device>,
    since: Instant,
    elapsed: Duration,
}

struct Device {
    /// The kernel's folder of the device.
    folder: PathBuf,
    /// Counters at the begin, and after the end their differences.
    counters: Counters,
}

/// The columns of the kernel's file that fio shows. Times are in milliseconds.
#[derive(Clone, Copy)]
struct Counters {
    /// Requests, merged requests and time of the requests: reads, writes.
    ios: [u64; 2],
    merges: [u64; 2],
    ticks: [u64; 2],
    /// Time in which the device had requests.
    busy: u64,
    /// Time of all requests together.
    in_queue: u64,
}

impl Counters {
    /// Reads the counters of the device with this folder.
    fn read(folder: &Path) -> Option<Self> {
        let text = read(folder.join("stat"))?;
        let numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let of = |first: usize| Some([*numbers.get(first)?, *numbers.get(first + 4)?]);
        Some(Self {
            ios: of(0)?,
            merges: of(1)?,
            ticks: of(3)?,
            busy: *numbers.get(9)?,
            in_queue: *numbers.get(10)?,
        })
    }

    /// The differences to earlier counters.
    fn since(self, before: Self) -> Self {
        let less = |now: [u64; 2], before: [u64; 2]| {
            [
                now[0].saturating_sub(before[0]),
                now[1].saturating_sub(before[1]),
            ]
        };
        Self {
            ios: less(self.ios, before.ios),
            merges: less(self.merges, before.merges),
            ticks: less(self.ticks, before.ticks),
            busy: self.busy.saturating_sub(before.busy),
            in_queue: self.in_queue.saturating_sub(before.in_queue),
        }
    }
}

impl DiskUtil {
    /// Reads the counters of the devices below these disks.
    pub(crate) fn begin<'a>(uris: impl Iterator<Item = &'a str>) -> Self {
        let mut folders = Vec::new();
        for spec in uris.filter_map(|uri| Spec::parse(uri).ok()) {
            add_folders(&spec, &mut folders);
        }
        folders.sort();
        folders.dedup();
        let device = |folder: PathBuf| {
            let counters = Counters::read(&folder)?;
            Some(Device { folder, counters })
        };
        Self {
            devices: folders.into_iter().filter_map(device).collect(),
            since: Instant::now(),
            elapsed: Duration::ZERO,
        }
    }

    /// Turns the counters into differences. A device that is gone is left out.
    pub(crate) fn end(mut self) -> Self {
        self.elapsed = self.since.elapsed();
        self.devices.retain_mut(|device| {
            let now = Counters::read(&device.folder);
            let since = now.map(|now| now.since(device.counters));
            device.counters = since.unwrap_or(device.counters);
            since.is_some()
        });
        self
    }

    /// fio's `disk_util`.
    pub(crate) fn json(&self) -> Value {
        let row = |device: &Device| {
            let counters = &device.counters;
            json!({
                "name": device.name(),
                "read_ios": counters.ios[0],
                "write_ios": counters.ios[1],
                "read_merges": counters.merges[0],
                "write_merges": counters.merges[1],
                "read_ticks": counters.ticks[0],
                "write_ticks": counters.ticks[1],
                "in_queue": counters.in_queue,
                "util": self.util(device),
            })
        };
        self.devices.iter().map(row).collect()
    }

    /// fio's lines, empty without a device.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for device in &self.devices {
            let counters = &device.counters;
            let both = |[reads, writes]: [u64; 2]| format!("{reads}/{writes}");
            text += &format!(
                "  {}: ios={}, merge={}, ticks={}, in_queue={}, util={:.2}%\n",
                device.name(),
                both(counters.ios),
                both(counters.merges),
                both(counters.ticks),
                counters.in_queue,
                self.util(device)
            );
        }
        match text.is_empty() {
            true => text,
            false => format!("Disk stats (read/write):\n{text}"),
        }
    }

    /// Percentage of the time in which the device had requests.
    fn util(&self, device: &Device) -> f64 {
        let elapsed_ms = self.elapsed.as_secs_f64() * 1e3;
        let percent = device.counters.busy as f64 * 100.0 / elapsed_ms.max(1.0);
        percent.min(100.0)
    }
}

impl Device {
    fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Adds the kernel's folders of the devices below a disk.
fn add_folders(spec: &Spec, folders: &mut Vec<PathBuf>) {
    match &spec.disk {
        Disk::File { path, .. } => folders.extend(folder_of(Path::new(path))),
        Disk::Raid0 { members, .. } => members.iter().for_each(|one| add_folders(one, folders)),
        _ => {}
    }
}

/// The kernel's folder of a block device, or of the device below a file. A partition counts as its
/// whole device.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok()?;
    let number = match metadata.file_type().is_block_device() {
        true => metadata.rdev(),
        false => metadata.dev(),
    };
    let folder = fs::canonicalize(kernel_folder(number)).ok()?;
    match folder.join("partition").exists() {
        true => folder.parent().map(Path::to_owned),
        false => Some(folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_as_in_fio() {
        let device = Device {
            folder: "/sys/block/sda".into(),
            counters: Counters {
                ios: [1, 5],
                merges: [2, 6],
                ticks: [4, 8],
                busy: 250,
                in_queue: 11,
            },
        };
        let util = DiskUtil {
            devices: vec![device],
            since: Instant::now(),
            elapsed: Duration::from_secs(1),
        };
        assert_eq!(
            util.text(),
            "Disk stats (read/write):\n  sda: ios=1/5, merge=2/6, ticks=4/8, in_queue=11, util=25.00%\n"
        );
        assert_eq!(util.json()[0]["write_ticks"], 8);
    }

    #[test]
    fn memory_has_no_device() {
        let util = DiskUtil::begin(["ram:1M", "nonsense:"].into_iter()).end();
        assert_eq!((util.text(), util.json()), (String::new(), json!([])));
    }
}
