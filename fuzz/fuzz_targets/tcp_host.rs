//! Plays an arbitrary controller to the host machine; the body is in `fabrix_fuzz::bodies`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::bodies::tcp_host(data));
