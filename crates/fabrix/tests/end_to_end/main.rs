//! The program as its users meet it: the real binary, real sockets on loopback, real files.
//!
//! Every test starts what it needs on ports that the system chooses and ends it again; nothing
//! needs a privilege, and what a machine lacks is said with a line that begins with SKIPPED. One
//! program with a module per topic, so that it is linked once.

mod attach;
mod attach_device;
mod attach_fuse_ring;
mod attach_gateways;
mod attach_life;
mod attach_paths;
mod attach_place;
mod attach_programs;
mod attach_wrong;
mod bench;
mod bench_files;
mod commands;
mod control;
mod demo;
mod discovery;
mod disks;
mod faults;
mod fio_contents;
mod fio_corpus;
mod fio_forms;
mod fio_lines;
mod fio_verify;
mod foreign;
mod harness;
mod initiator;
mod iscsi;
mod lifecycle;
mod log;
mod outages;
mod pasted;
mod plain_initiator;
mod profiles;
mod reexport;
mod reservations;
mod results;
mod secrets;
mod wrong_disk;
mod wrong_target;
