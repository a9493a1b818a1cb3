//! Reads arbitrary text as keys and values; the body is in `fabrix_fuzz::iscsi`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::iscsi::parse_iscsi_text(data));
