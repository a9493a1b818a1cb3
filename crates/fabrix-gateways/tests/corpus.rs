//! The fuzz target of this crate as an ordinary test: over the corpus, where every find stays.

#[path = "../../../fuzz/src/gateways.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod gateways;

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_is_read_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gateway_state");
    let entries = fs::read_dir(folder).expect("a folder");
    let texts: Vec<Vec<u8>> = entries
        .map(|entry| fs::read(entry.expect("an entry").path()).expect("a file"))
        .collect();
    assert!(texts.len() >= 2);
    texts.iter().for_each(|text| gateways::gateway_state(text));
}
