//! Feeds arbitrary bytes to the PDU headers; the body is in `fabrix_fuzz::bodies`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::bodies::parse_tcp_pdu(data));
