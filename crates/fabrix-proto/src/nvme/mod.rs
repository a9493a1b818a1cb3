//! NVMe: command sets, fabrics, controller and transports. User data stays with the caller.
//!
//! - [`spec`], [`identify`], [`log_page`]: layouts of structures.
//! - [`command`], [`admin`], [`features`], [`fabrics`]: typed commands, parsed and built.
//! - [`ana`]: states of the paths to a namespace.
//! - [`subsystem`]: exported subsystems as plain data. [`nqn`] checks their names.
//! - [`controller`]: answers the admin queue of one association.
//! - [`instance`]: instances of a controller, and the command by which a host ends a lost one.
//! - [`bringup`]: the host's counterpart of the controller.
//! - [`reservation`]: NVMe's reservation commands. Other protocols share the reservation state.
//! - [`queue`]: contract between commands and the transports that carry them.
//! - [`rdma`]: transport over RDMA.
//! - [`tcp`]: transport over TCP.

pub mod admin;
pub mod ana;
pub mod bringup;
pub mod command;
mod command_ids;
pub mod controller;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod instance;
pub mod log_page;
pub mod nqn;
pub mod queue;
pub mod rdma;
pub mod reservation;
mod slot_ids;
pub mod spec;
mod sq_head;
pub mod subsystem;
pub mod tcp;
pub mod timing;
