//! Plays an arbitrary initiator that logs in; the body is in `fabrix_fuzz::iscsi`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::iscsi::iscsi_login(data));
