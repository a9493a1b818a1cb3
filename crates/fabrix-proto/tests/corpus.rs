//! The fuzz targets as ordinary tests: over the corpus, where every find stays, and over random
//! input.

#[path = "../../../fuzz/src/bodies.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod bodies;
#[path = "../../../fuzz/src/initiator.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod initiator;
#[path = "../../../fuzz/src/iscsi.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod iscsi;
#[path = "../../../fuzz/src/nbd.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod nbd;
#[path = "../../../fuzz/src/scsi.rs"]
#[allow(
    unreachable_pub,
    reason = "written for the fuzz crate, where it is reachable"
)]
mod scsi;

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::num::u8::ANY;
use proptest::prelude::ProptestConfig;

type Body = fn(&[u8]);

const BODIES: [(&str, Body); 18] = [
    ("parse_tcp_pdu", bodies::parse_tcp_pdu),
    ("parse_command", bodies::parse_command),
    ("parse_connect", bodies::parse_connect),
    ("parse_identify", bodies::parse_identify),
    ("bringup", bodies::bringup),
    ("tcp_target", bodies::tcp_target),
    ("tcp_host", bodies::tcp_host),
    ("parse_iscsi_text", iscsi::parse_iscsi_text),
    ("iscsi_keys", iscsi::iscsi_keys),
    ("parse_iscsi_pdu", iscsi::parse_iscsi_pdu),
    ("parse_scsi_cdb", scsi::parse_scsi_cdb),
    ("scsi_unit", scsi::scsi_unit),
    ("parse_reservations", scsi::parse_reservations),
    ("iscsi_chap", iscsi::iscsi_chap),
    ("iscsi_login", iscsi::iscsi_login),
    ("iscsi_target", iscsi::iscsi_target),
    ("iscsi_initiator", initiator::iscsi_initiator),
    ("nbd_server", nbd::nbd_server),
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

/// Pieces of two seeds with bytes changed here and there: what neither a cut nor chance comes upon.
/// Always the same.
#[test]
fn spliced_seeds_pass() {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % most.max(1)
    };
    for (name, body) in BODIES {
        let seeds = seeds(name);
        for _ in 0..SPLICES {
            let (one, two) = (&seeds[below(seeds.len())], &seeds[below(seeds.len())]);
            let (end, start) = (below(one.len() + 1), below(two.len() + 1));
            let mut input = [&one[..end], &two[start..]].concat();
            for _ in 0..below(6) {
                let at = below(input.len());
                if let Some(byte) = input.get_mut(at) {
                    *byte = [0, 1, 0x7F, 0x80, 0xFF, *byte ^ 0x10][below(6)];
                }
            }
            body(&input);
        }
    }
}

/// A second at most, for all of them.
const SPLICES: usize = 1000;

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
        iscsi::iscsi_target(&[&[1, options], &data[..]].concat());
        initiator::iscsi_initiator(&[&[1, options], &data[..]].concat());
        nbd::nbd_server(&[&[options | 13], &data[..]].concat());
    }
}
