//! Keys for the disk or files of a job, and for sizes and addresses of its requests.

use fabrix_bench::Rw;

use super::Key;
use crate::profiles::job_file::engines;
use crate::profiles::job_file::keys::Amount;
use crate::profiles::job_file::numbers::{size, switch, whole, word};

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["name"],
        |section, value| {
            section.name = Some(value.to_owned());
            Ok(())
        },
        "name in results; in `[global]` without effect, as in fio",
    ),
    Key::honoured(
        &["filename"],
        |section, value| {
            section.add_file(value);
            Ok(())
        },
        "the disk as a URI or a path; a file that is not there is made, with `size` or `filesize`; `A:B` are several \
         files or devices, of which each request takes the next: at most 64, each once, of one length unless `size` is \
         given, and for requests of one length without a number behind `rw=`; given twice, also in `[global]`, it adds \
         files, as in fio",
    ),
    Key::honoured(
        &["directory"],
        |section, value| {
            section.place.directory = Some(value.to_owned());
            Ok(())
        },
        "`filename` lies there, and without it each job has files of its own there; the jobs of `numjobs` take turns \
         with the folders of a list `A:B`",
    ),
    Key::honoured(
        &["filename_format"],
        |section, value| {
            section.place.format = Some(value.to_owned());
            Ok(())
        },
        "`$jobname`, `$jobnum` and `$filenum` are known",
    ),
    Key::honoured(
        &["nrfiles", "nr_files"],
        |section, value| {
            section.place.nrfiles = whole(value, 1, section.kilo)?;
            Ok(())
        },
        "files of each job that names none with `filename`: up to 64, `size` is that of all together; for requests of \
         one length without a number behind `rw=`",
    ),
    Key::honoured(
        &["file_service_type"],
        |section, value| section.set_service(value),
        "`roundrobin`, `roundrobin:N` for sequential jobs, `random` for random ones; random addresses choose their \
         file by chance in both; `sequential` and the other laws only for a job with one file",
    ),
    Key::honoured(
        &["filesize"],
        |section, value| {
            if value.contains('-') && !value.starts_with('(') {
                return Err("ranges are not supported; write one size for all files".into());
            }
            section.file_bytes = Some(size(value, section.kilo)?);
            Ok(())
        },
        "bytes of each file, and so the most that a job uses of the disk; ranges are not supported: files have one \
         length",
    ),
    Key::honoured(
        &["direct"],
        |section, value| {
            section.place.direct = switch(value)?;
            Ok(())
        },
        "0 is the default as in fio: files and block devices go through the page cache",
    ),
    Key::honoured(
        &["buffered"],
        |section, value| {
            section.place.direct = !switch(value)?;
            Ok(())
        },
        "the opposite of `direct`",
    ),
    Key::honoured(
        &["ioengine"],
        |section, value| {
            section.synchronous = engines::is_synchronous(value)?;
            section.engine = Some(value.to_owned());
            Ok(())
        },
        "synchronous engines, and so the default `psync`, have depth 1; engines for other disks are refused",
    ),
    Key::honoured(
        &["rw", "readwrite"],
        |section, value| {
            let (name, follows) = value.split_once(':').unzip();
            let name = name.unwrap_or(value);
            section.job.rw = Rw::parse(name).map_err(|error| error.to_string())?;
            section.set_follows(follows)
        },
        "read, write, randread, randwrite, rw, randrw, trim, randtrim, trimwrite, randtrimwrite; `read:8k` leaves out \
         8 KiB behind each request, `read:-8k` walks backwards, and `randread:8` makes 8 requests one after the other \
         at each random address",
    ),
    Key::honoured(
        &["rw_sequencer"],
        |section, value| {
            let words = [("sequential", false), ("identical", true)];
            section.job.run_is_identical = word(value, &words)?;
            Ok(())
        },
        "whether the requests of `randread:8` have one address",
    ),
    Key::honoured(
        &["bs", "blocksize"],
        |section, value| section.set_block(value),
        "up to three sizes: reads, writes, trims; one power of two from 4k to 16m for jobs with several files",
    ),
    Key::honoured(
        &["bssplit"],
        |section, value| {
            section.job.split = section.split(value)?;
            section.job.ranges = [None; 2];
            Ok(())
        },
        "not for jobs with several files, which need requests of one length",
    ),
    Key::honoured(
        &["size"],
        |section, value| section.set_place("size", value),
        "bytes, or percent of the disk",
    ),
    Key::honoured(
        &["offset", "fileoffset"],
        |section, value| section.set_place("offset", value),
        "bytes, or percent of the disk",
    ),
    Key::honoured(
        &["offset_increment"],
        |section, value| {
            section.increment = Amount::parse(value, section.kilo)?;
            Ok(())
        },
        "bytes, or percent of the disk",
    ),
    Key::honoured(
        &["io_size", "io_limit"],
        |section, value| {
            section.io_size = Some(Amount::parse(value, section.kilo)?);
            Ok(())
        },
        "bytes, or percent of the region",
    ),
    Key::honoured(
        &["number_ios"],
        |section, value| {
            section.job.number_ios = Some(whole(value, 1, section.kilo)?);
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["fill_device", "fill_fs"],
        |section, value| {
            section.fills = switch(value)?;
            Ok(())
        },
        "the whole disk is written, whatever `size` says; a file keeps its length",
    ),
];
