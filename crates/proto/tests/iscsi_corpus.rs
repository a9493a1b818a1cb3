//! The fuzz targets of iSCSI as ordinary tests: over the corpus, where every find stays, and over random input.

#[path = "../../../fuzz/src/iscsi.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod bodies;

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::num::u8::ANY;
use proptest::prelude::ProptestConfig;

type Body = fn(&[u8]);

const BODIES: [(&str, Body); 8] = [
    ("parse_iscsi_text", bodies::parse_iscsi_text),
    ("iscsi_keys", bodies::iscsi_keys),
    ("parse_iscsi_pdu", bodies::parse_iscsi_pdu),
    ("parse_scsi_cdb", bodies::parse_scsi_cdb),
    ("parse_reservations", bodies::parse_reservations),
    ("iscsi_chap", bodies::iscsi_chap),
    ("iscsi_login", bodies::iscsi_login),
    ("iscsi_target", bodies::iscsi_target),
];

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(corpus.join(name)).expect("the folder can be read");
    let read = |file: std::io::Result<fs::DirEntry>| {
        let path = file.expect("an entry").path();
        println!("{}", path.display());
        fs::read(path).expect("the file can be read")
    };
    let seeds: Vec<_> = files.map(read).collect();
    assert!(!seeds.is_empty(), "{name} is empty");
    seeds
}

/// Each seed, each cut of it and each changed byte: neighbours of what is valid.
#[test]
fn every_file_of_the_corpus_and_its_neighbours_pass() {
    for (name, body) in BODIES {
        for seed in seeds(name) {
            body(&seed);
            for place in 0..seed.len().min(300) {
                body(&seed[..place]);
                for bits in [0x01, 0x80, 0xFF] {
                    let mut changed = seed.clone();
                    changed[place] ^= bits;
                    body(&changed);
                }
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_input_passes(data in vec(ANY, 0..1500)) {
        for (_, body) in BODIES {
            body(&data);
        }
    }

    /// A session that has begun, then anything.
    #[test]
    fn random_scripts_after_a_login_pass(options in ANY, data in vec(ANY, 0..600)) {
        bodies::iscsi_target(&[&[1, options], &data[..]].concat());
    }
}
