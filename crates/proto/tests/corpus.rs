//! The fuzz targets as ordinary tests: over the corpus, where every find stays, and over random input.

#[path = "../../../fuzz/src/bodies.rs"]
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

const BODIES: [(&str, Body); 7] = [
    ("parse_tcp_pdu", bodies::parse_tcp_pdu),
    ("parse_command", bodies::parse_command),
    ("parse_connect", bodies::parse_connect),
    ("parse_identify", bodies::parse_identify),
    ("bringup", bodies::bringup),
    ("tcp_target", bodies::tcp_target),
    ("tcp_host", bodies::tcp_host),
];

#[test]
fn every_file_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, body) in BODIES {
        let folder = corpus.join(name);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| {
            panic!("{}: {error}", folder.display());
        });
        let mut count = 0;
        for file in files {
            let path = file.expect("the folder can be read").path();
            println!("{}", path.display());
            body(&fs::read(&path).expect("the file can be read"));
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }
}

/// Each cut and each changed byte of the seeds: neighbours of what is valid.
#[test]
fn every_neighbour_of_a_seed_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, body) in BODIES {
        for file in fs::read_dir(corpus.join(name)).expect("the folder can be read") {
            let seed = fs::read(file.expect("an entry").path()).expect("the file can be read");
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

    /// An opening that works, then anything.
    #[test]
    fn random_scripts_after_an_opening_pass(options in ANY, data in vec(ANY, 0..600)) {
        let script = |opening: &[u8]| [&[options], opening, &data].concat();
        bodies::tcp_target(&script(&[1, options >> 1, 0]));
        bodies::tcp_host(&script(&[1, 0, 0, 0, 0x20, 0, 0, 2, 0, 8, 1, 0, 2, 1, 8, 2, 0]));
    }
}
