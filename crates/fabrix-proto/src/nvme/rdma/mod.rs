//! NVMe over RDMA: capsules as messages, data by RDMA READ and RDMA WRITE.
//!
//! [`connect`] has the private data of a connection request and its answers. [`target`] is the
//! controller's side of one queue as a machine without I/O, [`host`] is the host's. [`capsule`]
//! decides where the data of a command lies. A message is a whole capsule, so there is no byte
//! stream and no [`Machine`] here. The transport holds messages, keys and data, and says what has
//! arrived.
//!
//! Source: NVM Express RDMA Transport Specification 1.1.
//!
//! [`Machine`]: crate::Machine

pub mod capsule;
pub mod connect;
pub mod host;
pub mod target;

/// Data in bytes that an I/O command's capsule may carry behind its entry.
///
/// Linux 5.4 to 5.12 damages writes whose length is no multiple of 4096 where a controller takes
/// more than this and also lists of descriptors.
pub const IN_CAPSULE_BYTES: u32 = 4096;
