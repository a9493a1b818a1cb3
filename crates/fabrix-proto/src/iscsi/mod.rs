//! iSCSI: both sides of one connection, as machines without I/O.
//!
//! Layout first, meaning second: [`pdu`] says where the bytes of every PDU are; [`text`] reads and
//! writes key=value pairs; [`keys`] negotiates them; [`auth`] is CHAP; [`serial`] counts commands;
//! [`login`] leads a connection to its full-feature phase and yields a session's values. [`target`]
//! and [`initiator`] are the two endpoints of a connection, [`framing`] is their contract with what
//! carries their PDUs, and [`tcp`] the machine that carries them on a byte stream. ERL 0, one
//! connection per session. Nothing here knows what a CDB means or sees the user's data.
//!
//! Source: RFC 7143, "Internet Small Computer System Interface (iSCSI) Protocol (Consolidated)".

pub mod auth;
pub mod framing;
pub mod initiator;
pub mod keys;
pub mod login;
pub mod pdu;
pub mod serial;
pub mod target;
pub mod tcp;
pub mod text;
