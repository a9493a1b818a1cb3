//! Both machines of iSCSI on wires in memory: every input has an outcome that was decided.

mod abuse;
mod chap;
mod control;
mod data;
mod data_wrong;
mod golden;
mod host;
mod hostile;
mod hostile_login;
mod initiator;
mod iser;
mod iser_initiator;
mod login;
mod login_wrong;
mod messages;
mod states;
mod text;
mod window;
mod wire;
