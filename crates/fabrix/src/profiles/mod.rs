//! Reproductions of published measurements, one module each: method, workloads, table, and the
//! published figures as data. They measure through `cli::bench::session` and know no report format.

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
