//! Sense data, byte for byte, in both formats.

mod scsi_common;

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, Sense, SenseFormat, SenseKey};
use scsi_common::Numbers;

fn bytes(sense: &Sense, format: SenseFormat) -> Vec<u8> {
    let mut out = [0xEE; SENSE_BYTES_MAX];
    let length = sense.write(format, &mut out);
    out[..length].to_vec()
}

#[test]
fn an_illegal_field_in_fixed_format() {
    let sense = Sense::field_in_cdb(2, Some(5));
    let expected = [
        0x70, 0, 0x05, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCD, 0, 2,
    ];
    assert_eq!(bytes(&sense, SenseFormat::Fixed), expected);
}

#[test]
fn an_illegal_field_in_descriptor_format() {
    let sense = Sense::field_in_parameters(0x0102, None);
    let expected = [
        0x72, 0x05, 0x26, 0, 0, 0, 0, 8, 0x02, 0x06, 0, 0, 0x80, 1, 2, 0,
    ];
    assert_eq!(bytes(&sense, SenseFormat::Descriptor), expected);
}

#[test]
fn a_miscompare_says_where() {
    let sense = Sense::miscompare(0x0102);
    let fixed = bytes(&sense, SenseFormat::Fixed);
    assert_eq!(fixed[..8], [0xF0, 0, 0x0E, 0, 0, 1, 2, 10]);
    assert_eq!(fixed[12..14], [0x1D, 0]);
    let expected = [
        0x72, 0x0E, 0x1D, 0, 0, 0, 0, 12, 0, 0x0A, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2,
    ];
    assert_eq!(bytes(&sense, SenseFormat::Descriptor), expected);
}

#[test]
fn information_that_needs_more_than_four_bytes_is_not_valid_in_fixed_format() {
    let medium = Sense::new(
        SenseKey::MEDIUM_ERROR,
        AdditionalSense::UNRECOVERED_READ_ERROR,
    );
    let sense = medium.with_information(1 << 32);
    assert_eq!(
        bytes(&sense, SenseFormat::Fixed)[..7],
        [0x70, 0, 3, 0, 0, 0, 0]
    );
}

#[test]
fn both_formats_are_read_back() {
    let senses = [
        Sense::NONE,
        Sense::field_in_cdb(9, Some(0)),
        Sense::field_in_parameters(500, None),
        Sense::miscompare(77),
        Sense::field_in_cdb(1, None).with_information(5),
    ];
    for sense in senses {
        for format in [SenseFormat::Fixed, SenseFormat::Descriptor] {
            assert_eq!(Sense::parse(&bytes(&sense, format)), Some(sense));
        }
    }
}

#[test]
fn codes_have_the_standards_names() {
    let code = AdditionalSense(0x2A09);
    assert_eq!(code, AdditionalSense::CAPACITY_DATA_CHANGED);
    assert_eq!(code.to_string(), "CAPACITY DATA HAS CHANGED (2Ah/09h)");
    assert!(AdditionalSense::ALL.is_sorted_by_key(|code| code.0));
}

#[test]
fn arbitrary_and_cut_sense_data_never_panic() {
    let mut numbers = Numbers(0xFACE);
    for round in 0..50_000usize {
        let mut data = numbers.bytes(round % 40);
        if let Some(first) = data.first_mut() {
            *first = 0x70 | *first & 3;
        }
        let _ = Sense::parse(&data);
    }
}
