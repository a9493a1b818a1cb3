//! ublk, Linux's block driver in user space, as a server speaks it: what is told to the driver
//! about a device, what the driver asks, what it is answered.
//!
//! [`spec`] holds what lies in memory, [`queue`] the machine: whose turn it is for each tag of a
//! queue. Integers are in the machine's own order, for both ends are this machine. The driver is
//! trusted to be the driver, and still nothing that it says can do more than be refused.
//!
//! Data goes by reads and writes of the character device at [`spec::data_position`]
//! (`UBLK_F_USER_COPY`), or stays where it is, named by a place in the table of the server's ring
//! (`UBLK_F_AUTO_BUF_REG`); so no command carries an address.
//! Source: include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst of the Linux kernel.

pub mod queue;
pub mod spec;
