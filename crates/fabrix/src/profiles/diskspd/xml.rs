//! DiskSpd's results as XML, with the elements that other programs read.
//!
//! Source: the output of `-Rxml` as described in DiskSpd's documentation.

use std::fmt::Display;

use fabrix_bench::Results;
use fabrix_bench::latency::Latency;

use super::flags::{Flags, NAMES};
use super::output::{deviation, joined, processors, seconds};
use crate::cli::bench::session::Disk;
use crate::report::figure::escape;
use crate::report::sheet::Run;

/// The complete document.
pub(super) fn results(flags: &Flags, disks: &[Disk], runs: &[Run]) -> String {
    let mut xml = Xml::default();
    let Some(all) = joined(runs) else {
        return xml.text;
    };
    let cpu = all.cpu;
    xml.within("Results", |xml| {
        xml.within("System", |xml| {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            xml.element("ComputerName", escape(name.trim()));
            xml.within("Tool", |xml| {
                xml.element("Version", env!("CARGO_PKG_VERSION"))
            });
        });
        profile(xml, flags, disks);
        xml.within("TimeSpan", |xml| {
            xml.element("TestTimeSeconds", format!("{:.2}", seconds(&all)));
            xml.element("ThreadCount", all.jobs.len());
            xml.element("ProcCount", cpu.cores);
            xml.within("CpuUtilization", |xml| {
                xml.within("Average", |xml| {
                    let names = ["Usage", "User", "Kernel", "Idle"];
                    for (name, percent) in names.into_iter().zip(processors(&cpu)) {
                        xml.element(&format!("{name}Percent"), format!("{percent:.2}"));
                    }
                });
            });
            if flags.latency {
                latency(xml, &all);
            }
            iops(xml, &all);
            threads(xml, flags, disks, runs);
        });
    });
    xml.text
}

fn profile(xml: &mut Xml, flags: &Flags, disks: &[Disk]) {
    let job = &flags.job;
    xml.within("Profile", |xml| {
        xml.within("TimeSpans", |xml| {
            xml.within("TimeSpan", |xml| {
                xml.element("Duration", job.runtime.as_secs());
                xml.element("Warmup", job.ramp.as_secs());
                xml.element("Cooldown", "0");
                xml.element("RandSeed", job.seed);
                xml.element("MeasureLatency", flags.latency);
                xml.within("Targets", |xml| {
                    for (disk, target) in disks.iter().zip(&flags.targets) {
                        xml.within("Target", |xml| {
                            xml.element("Path", escape(&disk.label));
                            xml.element("BlockSize", job.block_bytes);
                            xml.element("DisableOSCache", !flags.is_cached(target));
                            xml.element("WriteThrough", job.durable);
                            xml.element(
                                if job.rw.is_random() {
                                    "Random"
                                } else {
                                    "StrideSize"
                                },
                                job.block_bytes,
                            );
                            xml.element("RequestCount", job.iodepth);
                            xml.element("WriteRatio", 100 - job.rwmixread);
                            xml.element("ThreadsPerFile", job.numjobs);
                        });
                    }
                });
            });
        });
    });
}

fn latency(xml: &mut Xml, results: &Results) {
    let all = &results.aggregate;
    let sides = [
        ("Read", &all.read.latency),
        ("Write", &all.write.latency),
        ("Total", &all.total.latency),
    ];
    xml.within("Latency", |xml| {
        for (name, side) in sides {
            if side.count > 0 {
                xml.element(&format!("Average{name}Milliseconds"), ms(side.mean_ns));
                xml.element(
                    &format!("{}LatencyStdev", if name == "Total" { "" } else { name }),
                    ms(side.stddev_ns),
                );
            }
        }
        let mut bucket = |percent: String, of: &dyn Fn(&Latency) -> Option<u64>| {
            xml.within("Bucket", |xml| {
                xml.element("Percentile", percent);
                for (name, side) in sides {
                    if let Some(ns) = of(side).filter(|_| side.count > 0) {
                        xml.element(&format!("{name}Milliseconds"), ms(ns as f64));
                    }
                }
            });
        };
        bucket("0".into(), &|latency| Some(latency.min_ns));
        for (_, percent) in NAMES {
            bucket(percent.to_string(), &|latency| {
                latency.percentile_ns(percent)
            });
        }
        bucket("100".into(), &|latency| Some(latency.max_ns));
    });
}

fn iops(xml: &mut Xml, all: &Results) {
    xml.within("Iops", |xml| {
        for (name, directions) in [("Read", &[0][..]), ("Write", &[1]), ("", &[0, 1])] {
            let value = deviation(&all.series, directions);
            xml.element(&format!("{name}IopsStdDev"), format!("{value:.3}"));
        }
        for point in &all.series {
            let seconds = point.span.as_secs_f64().max(1e-9);
            let rate = |side: usize| point.sides[side].ios as f64 / seconds;
            let (at, total) = (point.at.as_millis(), point.iops());
            let (read, write) = (rate(0), rate(1));
            xml.text += &format!(
                "<Bucket SampleMillisecond=\"{at}\" Read=\"{read:.0}\" Write=\"{write:.0}\" Total=\"{total:.0}\"/>\n"
            );
        }
    });
}

fn threads(xml: &mut Xml, flags: &Flags, disks: &[Disk], runs: &[Run]) {
    let runs = runs.iter().zip(disks);
    let jobs = runs.flat_map(|(run, disk)| run.results.jobs.iter().map(move |job| (disk, job)));
    for (index, (disk, job)) in jobs.enumerate() {
        xml.within("Thread", |xml| {
            xml.element("Id", index);
            xml.within("Target", |xml| {
                xml.element("Path", escape(&disk.label));
                xml.element("BytesCount", job.total.bytes);
                xml.element("FileSize", disk.device.geometry().bytes());
                xml.element("IOCount", job.total.ios);
                xml.element("ReadBytes", job.read.bytes);
                xml.element("ReadCount", job.read.ios);
                xml.element("WriteBytes", job.write.bytes);
                xml.element("WriteCount", job.write.ios);
                if flags.latency {
                    xml.element("AverageLatencyMilliseconds", ms(job.total.latency.mean_ns));
                    xml.element("LatencyStdev", ms(job.total.latency.stddev_ns));
                }
            });
        });
    }
}

/// Nanoseconds as milliseconds.
fn ms(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

/// A growing document. Callers escape the contents of elements.
#[derive(Default)]
struct Xml {
    text: String,
}

impl Xml {
    fn element(&mut self, name: &str, value: impl Display) {
        self.text += &format!("<{name}>{value}</{name}>\n");
    }

    fn within(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        self.text += &format!("<{name}>\n");
        inside(self);
        self.text += &format!("</{name}>\n");
    }
}
