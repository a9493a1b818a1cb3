//! Plays two initiators to a logical unit, with parameter lists; the body is in
//! `fabrix_fuzz::scsi`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::scsi::scsi_unit(data));
