//! ublk, Linux's user-space block driver, server side: device setup, requests, and their results.
//!
//! [`spec`] holds the layout of structures, [`queue`] the machine that tracks the owner of each
//! tag. Integers are in the machine's own order, because kernel and server run on the same machine.
//! The server trusts the driver, but refuses every invalid value from it.
//!
//! Data moves by reads and writes of the character device at [`spec::data_position`]
//! (`UBLK_F_USER_COPY`), or stays in the request's pages, which the server names by an index of its
//! ring's buffer table (`UBLK_F_AUTO_BUF_REG`). So no command carries an address.
//! Source: include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst of the Linux kernel.

pub mod queue;
pub mod spec;
