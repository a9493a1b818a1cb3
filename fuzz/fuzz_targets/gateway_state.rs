//! Reads arbitrary text as the state of a gateway group; the body is in `fabrix_fuzz::gateways`.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fabrix_fuzz::gateways::gateway_state(data));
