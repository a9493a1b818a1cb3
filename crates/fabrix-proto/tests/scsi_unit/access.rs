//! Access states (ALUA): what each state refuses, and what initiators read about it.

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::alua::{AccessState, state_of_group};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::reservation::Request;
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::unit::{Answer, Outcome};

use super::scsi_common::{Bench, GOOD, cdb10, nexus, sense};
use super::{OUT_OF_RANGE, TUR};

/// REPORT TARGET PORT GROUPS, with and without the extended header.
const GROUPS: [u8; 12] = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
const GROUPS_EXTENDED: [u8; 12] = [0xA3, 0x2A, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
const SET_GROUPS: [u8; 12] = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
/// The group of port 2.
const OTHER: u16 = 0xA2;

const READ_CAPACITY_16: [u8; 16] = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];

fn bench(state: AccessState) -> Bench {
    let mut bench = Bench::new();
    bench.states[0] = state;
    bench
}

#[test]
fn a_state_that_does_not_serve_refuses_all_but_what_tells_of_the_unit() {
    let refusals = [
        (AccessState::Transitioning, 0x040A),
        (AccessState::Standby, 0x040B),
        (AccessState::Unavailable, 0x040C),
    ];
    for (state, code) in refusals {
        let mut bench = bench(state);
        let refusal = Sense::new(SenseKey::NOT_READY, AdditionalSense(code));
        let mut save = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        save[1] = 6;
        for cdb in [
            &TUR[..],
            &cdb10(0x28, 0, 0, 1),
            &cdb10(0x2A, 0, 0, 1),
            &cdb10(0x35, 0, 0, 0),
            &cdb10(0x42, 0, 0, 24),
            &[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0],
            &save,
            &[0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0],
        ] {
            assert_eq!(bench.sense(cdb), refusal, "{cdb:02x?}");
        }
        assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0])[0], 0);
        assert_eq!(bench.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]).len(), 8);
        assert_eq!(bench.read(&READ_CAPACITY_16).len(), 32);
        assert_eq!(bench.read(&[0x1A, 0, 0x3F, 0, 64, 0])[3], 8);
        assert_eq!(bench.read(&[0x12, 1, 0x83, 0, 255, 0])[1], 0x83);
        assert_eq!(
            bench.read(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0])[3],
            3 * 8
        );
        let said = bench.read(&[3, 0, 0, 0, 18, 0]);
        assert_eq!((said[2], &said[12..14]), (2, &code.to_be_bytes()[..]));
        assert_eq!(state_of_group(&bench.read(&GROUPS), 1), Some(state));
        assert_eq!(AccessState::from_sense(refusal), Some(state));
    }
}

#[test]
fn states_that_serve_execute_commands() {
    for state in [
        AccessState::Optimized,
        AccessState::NonOptimized,
        AccessState::BlockDependent,
    ] {
        let mut bench = bench(state);
        bench.states[1] = AccessState::Unavailable;
        assert_eq!(bench.send(&TUR), GOOD);
        bench.operation(&cdb10(0x2A, 0, 0, 1));
    }
}

#[test]
fn the_state_of_each_group_is_read_in_both_formats() {
    let mut bench = bench(AccessState::NonOptimized);
    bench.states[1] = AccessState::Transitioning;
    for cdb in [GROUPS, GROUPS_EXTENDED] {
        let data = bench.read(&cdb);
        let states = [1, OTHER, 7].map(|group| state_of_group(&data, group));
        let expected = [AccessState::NonOptimized, AccessState::Transitioning];
        assert_eq!(states, [Some(expected[0]), Some(expected[1]), None]);
        for end in 0..data.len() {
            let states = [1, OTHER].map(|group| state_of_group(&data[..end], group));
            assert!(states[0].is_none_or(|state| state == expected[0]));
            assert!(states[1].is_none_or(|state| state == expected[1]));
        }
    }
}

#[test]
fn initiators_cannot_set_states() {
    let mut bench = bench(AccessState::Optimized);
    let unknown = Sense::illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(bench.sense(&SET_GROUPS), unknown);
    let tpgs = bench.read(&[0x12, 0, 0, 0, 36, 0])[5] >> 4 & 0b11;
    assert_eq!(tpgs, 0b01, "implicit only");
}

#[test]
fn a_state_is_told_after_an_attention_and_before_reservations_and_ranges() {
    let mut bench = bench(AccessState::Unavailable);
    let refusal = AccessState::Unavailable.sense().unwrap();
    let other = nexus("b");
    bench.apply(&other, &Request::LegacyReserve).unwrap();
    bench.attentions.add(Attention::AsymmetricAccessChanged);
    let attention = Sense::new(SenseKey::UNIT_ATTENTION, AdditionalSense(0x2A06));
    let far = cdb10(0x28, 0, u32::MAX, 1);
    assert_eq!(bench.sense(&far), attention);
    assert_eq!(bench.sense(&far), refusal);
    bench.apply(&other, &Request::LegacyRelease).unwrap();
    bench.states[0] = AccessState::Optimized;
    assert_eq!(bench.sense(&far), OUT_OF_RANGE);
}

#[test]
fn a_parameter_list_that_comes_after_the_change_is_refused() {
    let mut bench = bench(AccessState::Optimized);
    let Outcome::Parameters(command) = bench.send(&cdb10(0x42, 0, 0, 24)) else {
        panic!("UNMAP has a list");
    };
    bench.states[0] = AccessState::Transitioning;
    let refusal = AccessState::Transitioning.sense();
    let mut list = [0; 24];
    (list[1], list[3], list[19]) = (22, 16, 1);
    let refused = sense(bench.parameters(&command, &list));
    assert_eq!(Some(refused), refusal);
    bench.states[0] = AccessState::NonOptimized;
    let done = bench.parameters(&command, &list);
    assert!(!matches!(done, Outcome::Answer(Answer { .. })), "{done:?}");
}
