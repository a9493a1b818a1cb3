//! Known measurements, a module each: the method of a publication, its workloads, its table, and
//! its own figures as data. They ask `cli::bench::session` to measure and know no format of
//! reports.

pub(crate) mod cdm;
pub(crate) mod diskspd;
pub(crate) mod job_file;
pub(crate) mod loopback;
pub(crate) mod net;
pub(crate) mod path;
pub(crate) mod published;
pub(crate) mod sgp_dd;
pub(crate) mod starwind;
pub(crate) mod stgt;
pub(crate) mod zetavault;
