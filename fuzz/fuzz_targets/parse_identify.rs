//! Feeds arbitrary Identify data and log pages to their readers; the body is in
//! `fabrix_fuzz::bodies`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::bodies::parse_identify(data));
