//! Plays a hostile target to the initiator's machine; the body is in `fabrix_fuzz::initiator`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::initiator::iscsi_initiator(data));
