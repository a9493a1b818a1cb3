//! What initiators are told: attentions, sense data, and of a logical unit that is not there.

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::reservation::Notice;
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, Sense};
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, Failure, View, classify_absent};

use super::scsi_common::{Bench, GOOD};
use super::{OUT_OF_RANGE, TUR};

#[test]
fn attentions_are_told_once_in_order_and_three_commands_pass_by() {
    let mut bench = Bench::new();
    bench.attentions.add(Attention::LunsChanged);
    bench.attentions.add(Attention::CapacityChanged);
    bench.attentions.add(Attention::CapacityChanged);
    let inquiry = bench.read(&[0x12, 0, 0, 0, 36, 0]);
    assert_eq!(inquiry.len(), 36);
    assert_eq!(bench.sense(&TUR), Attention::CapacityChanged.sense());
    assert_eq!(bench.sense(&TUR), Attention::LunsChanged.sense());
    assert_eq!(bench.send(&TUR), GOOD);
    bench.attentions.add(Attention::LunsChanged);
    bench.read(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]);
    assert_eq!(bench.send(&TUR), GOOD, "REPORT LUNS has told");
    bench.attentions.add(Attention::NexusLoss);
    bench.attentions.add(Attention::DeviceReset);
    assert_eq!(bench.sense(&[0xFF; 16]), Attention::DeviceReset.sense());
    assert!(
        !bench.attentions.any(),
        "a reset makes the rest meaningless"
    );
}

#[test]
fn request_sense_takes_an_attention_as_data() {
    let mut bench = Bench::new();
    bench.attentions.add(Attention::ModeParametersChanged);
    let fixed = bench.read(&[3, 0, 0, 0, 252, 0]);
    assert_eq!(
        (fixed[0], fixed[2], fixed[12], fixed[13]),
        (0x70, 6, 0x2A, 1)
    );
    let none = bench.read(&[3, 1, 0, 0, 252, 0]);
    assert_eq!(none, [0x72, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_notices_of_reservations_are_attentions() {
    let codes = [
        Notice::ReservationPreempted,
        Notice::ReservationReleased,
        Notice::RegistrationPreempted,
    ]
    .map(|notice| Attention::from(notice).sense().code.0);
    assert_eq!(codes, [0x2A03, 0x2A04, 0x2A05]);
}

#[test]
fn a_logical_unit_that_is_not_there() {
    let mut page = [0xEE; 256];
    let mut send = |cdb: &[u8]| {
        let answer = classify_absent(&[0, 5], cdb, &mut page);
        let data = page[..answer.bytes as usize].to_vec();
        (answer, data)
    };
    let (_, inquiry) = send(&[0x12, 0, 0, 0, 255, 0]);
    assert_eq!((inquiry[0], inquiry.len()), (0x7F, 36));
    let (_, luns) = send(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    assert_eq!(luns.len(), 24);
    let (_, data) = send(&[3, 0, 0, 0, 255, 0]);
    assert_eq!((data[2], data[12]), (5, 0x25));
    for cdb in [&TUR[..], &[0xFF; 16], &[0x12, 1, 0, 0, 255, 0], &[]] {
        let code = send(cdb).0.sense.unwrap().code;
        assert_eq!(code, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    }
}

#[test]
fn failures_of_the_disk_in_scsi_s_words() {
    let check = |failure: Failure| failure.answer().sense.unwrap();
    assert_eq!(check(Failure::Miscompare(5)), Sense::miscompare(5));
    assert_eq!(check(Failure::Read(Some(7))).information, Some(7));
    assert_eq!(check(Failure::NoSpace).code.0, 0x2707);
    assert_eq!(check(Failure::Gone).code.0, 0x2500);
    assert_eq!(Failure::Busy.answer(), Answer::status(Status::BUSY));
}

#[test]
fn sense_bytes_have_the_format_of_the_mode() {
    let bench = Bench::new();
    let view = |descriptor_sense| View {
        disk: &bench.disk,
        mode: ModeParameters {
            descriptor_sense,
            ..bench.mode
        },
        target: &bench.target,
        port: 1,
        access: bench.states[0],
        states: &bench.states,
        luns: &[],
        reservations: &bench.reservations,
        standing: bench.reservations.standing(&bench.nexus),
    };
    let mut out = [0; SENSE_BYTES_MAX];
    let answer = Answer::check(OUT_OF_RANGE);
    assert_eq!(
        (view(false).sense_bytes(&answer, &mut out), out[0]),
        (18, 0x70)
    );
    assert_eq!(
        (view(true).sense_bytes(&answer, &mut out), out[0]),
        (8, 0x72)
    );
    assert_eq!(view(true).sense_bytes(&Answer::GOOD, &mut out), 0);
}
