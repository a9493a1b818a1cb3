//! Feeds arbitrary answers to the bring-up of a controller; the body is in `fabrix_fuzz::bodies`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::bodies::bringup(data));
