//! Reads arbitrary TransportIDs and stored reservations; the body is in `fabrix_fuzz::scsi`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::scsi::parse_reservations(data));
