//! NVMe: the command set, the fabrics, the controller, and the transports.
//!
//! Layout first, meaning second: [`spec`], [`identify`] and [`log_page`] say where the bytes are;
//! [`command`], [`admin`], [`features`] and [`fabrics`] turn entries into typed commands and back;
//! [`subsystem`] is what is exported, as plain data, under names checked by [`nqn`]; [`controller`]
//! answers the admin queue of one association, and [`bringup`] is its mirror on the host.
//! [`reservation`] is how hosts ask for reservations, whose state serves other protocols too.
//! [`queue`] is the contract between commands and the transports that carry them, of which [`tcp`]
//! is one. Nothing here reads or writes user data.

pub mod admin;
pub mod bringup;
pub mod command;
pub mod controller;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod log_page;
pub mod nqn;
pub mod queue;
pub mod reservation;
pub mod spec;
pub mod subsystem;
pub mod tcp;
pub mod timing;
