//! Plays an arbitrary host to the target machine; the body is in `fabrix_fuzz::bodies`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::bodies::tcp_target(data));
