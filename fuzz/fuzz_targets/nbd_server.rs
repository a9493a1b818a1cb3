//! Plays an arbitrary NBD client to the server's machine; the body is in `fabrix_fuzz::nbd`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::nbd::nbd_server(data));
