//! iSCSI: both sides of one connection, as machines without I/O.
//!
//! [`pdu`] has the layout of every PDU. [`text`] reads and writes key=value pairs, [`keys`]
//! negotiates them, [`auth`] is CHAP, and [`serial`] counts commands. [`login`] leads a connection
//! to its full-feature phase and returns the session's parameters. [`target`] and [`initiator`] are
//! the two endpoints of a connection. [`framing`] is their contract with the transport of their
//! PDUs, [`tcp`] the machine for a byte stream, and [`iser`] that for messages. ERL 0, one
//! connection per session. CDBs and user data are unknown here.
//!
//! Source: RFC 7143, "Internet Small Computer System Interface (iSCSI) Protocol (Consolidated)";
//! RFC 7145, "iSCSI Extensions for Remote Direct Memory Access (RDMA) Specification".

pub mod auth;
pub mod framing;
pub mod initiator;
pub mod iser;
pub mod keys;
pub mod login;
pub mod pdu;
pub mod serial;
pub mod target;
pub mod tcp;
pub mod text;
