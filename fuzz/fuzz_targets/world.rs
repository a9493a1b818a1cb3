//! Chooses what happens in a simulated world; the worlds are in `fabrix_sim`.

#![no_main]

use fabrix_sim::Cut;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (kind, run) = fabrix_sim::of_bytes(data, Cut::default());
    let report = (kind.run)(&run);
    assert!(
        report.faults.is_empty(),
        "{}: {:?}",
        kind.name,
        report.faults
    );
});
