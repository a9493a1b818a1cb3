//! `fabrix doctor`: what this machine can do for the data path, and what to change where it cannot.
//!
//! Looks and changes nothing.

use std::process::ExitCode;

use fabrix_rt::{engine, topology};
use serde_json::json;

use super::terminal::print;
use crate::args::{DoctorArgs, Format};
use crate::failure::Failure;

/// One thing looked at.
struct Finding {
    /// A stable key.
    subject: &'static str,
    good: bool,
    /// What was found.
    found: String,
    /// What to do, when it is not good.
    fix: Option<String>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let findings = [
        io_uring(),
        processors(),
        huge_pages(),
        open_files(),
        locked_memory(),
        socket_buffers(),
    ];
    match args.output {
        Format::Text => print(&findings.iter().map(as_text).collect::<String>())?,
        Format::Json => print(&format!("{:#}\n", as_json(&findings)))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn as_text(finding: &Finding) -> String {
    let mark = if finding.good { "ok " } else { "-- " };
    let fix = finding
        .fix
        .as_ref()
        .map_or_else(String::new, |fix| format!("    {:<16} -> {fix}\n", ""));
    format!("{mark} {:<16} {}\n{fix}", finding.subject, finding.found)
}

fn as_json(findings: &[Finding]) -> serde_json::Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "subject": finding.subject,
                "ok": finding.good,
                "found": finding.found,
                "fix": finding.fix,
            })
        })
        .collect();
    json!({ "schema": 1, "findings": findings })
}

fn io_uring() -> Finding {
    match engine::probe() {
        Ok(features) => Finding {
            subject: "io_uring",
            good: true,
            found: format!("usable, kernel {}.{}", features.kernel.0, features.kernel.1),
            fix: None,
        },
        Err(refused) => Finding {
            subject: "io_uring",
            good: false,
            found: format!("{}; epoll is used instead, and is slower", refused.found),
            fix: Some(refused.fix),
        },
    }
}

fn processors() -> Finding {
    let cpus = topology::cpus();
    let several = cpus.len() > 1;
    Finding {
        subject: "processors",
        good: several,
        found: format!("{} usable: {cpus:?}", cpus.len()),
        fix: (!several).then(|| {
            "initiator and target on one machine need two to be measured apart".to_owned()
        }),
    }
}

fn huge_pages() -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let good = text.contains("[always]") || text.contains("[madvise]");
    let found = if good {
        "RAM disks get large pages"
    } else {
        "RAM disks have small pages, and are slower"
    };
    Finding {
        subject: "huge pages",
        good,
        found: found.to_owned(),
        fix: (!good).then(|| format!("as root: echo madvise > {path}")),
    }
}

fn open_files() -> Finding {
    let (now, most) = topology::open_files().unwrap_or((0, 0));
    let good = most >= 4096;
    Finding {
        subject: "open files",
        good,
        found: format!("{now}, may be raised to {most}; every connection is one"),
        fix: (!good).then(|| {
            "raise the hard limit (ulimit -Hn, or LimitNOFILE= of a systemd unit)".to_owned()
        }),
    }
}

fn locked_memory() -> Finding {
    // Before 5.12 rings counted against this limit; what shards need since then is granted with any value.
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .unwrap_or_default();
    let limit = line.split_whitespace().nth(3).unwrap_or("unknown");
    Finding {
        subject: "locked memory",
        good: true,
        found: format!("{limit} bytes; enough"),
        fix: None,
    }
}

fn socket_buffers() -> Finding {
    let path = "/proc/sys/net/ipv4/tcp_wmem";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let most: u64 = text
        .split_whitespace()
        .last()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    let good = most >= 4 << 20;
    Finding {
        subject: "socket buffers",
        good,
        found: format!(
            "TCP may keep up to {} KiB unsent per connection",
            most >> 10
        ),
        fix: (!good)
            .then(|| "as root: sysctl -w net.ipv4.tcp_wmem='4096 65536 4194304'".to_owned()),
    }
}
