//! Chooses what happens in a simulated world; the worlds are in `fabrix_sim`.

#![no_main]

use fabrix_sim::{Cut, Run};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (kind, source) = fabrix_sim::of_bytes(data);
    let report = (kind.run)(&Run::new(&source, &Cut::default()));
    assert!(
        report.faults.is_empty(),
        "{}: {:?}",
        kind.name,
        report.faults
    );
});
