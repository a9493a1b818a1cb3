//! Reads arbitrary headers of both directions; the body is in `fabrix_fuzz::iscsi`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::iscsi::parse_iscsi_pdu(data));
