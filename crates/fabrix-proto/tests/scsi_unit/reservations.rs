//! PERSISTENT RESERVE OUT and IN byte by byte, and RESERVE and RELEASE.

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::reservation::{Kind, Refusal, Request};
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::unit::{Answer, Outcome};

use super::TUR;
use super::scsi_common::{Bench, CONFLICT, GOOD, cdb10, nexus, sense};

fn reserve_out(action: u8, kind: u8, length: u8) -> [u8; 10] {
    [0x5F, action, kind, 0, 0, 0, 0, 0, length, 0]
}

fn keys(key: u64, service: u64, flags: u8) -> Vec<u8> {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(service.to_be_bytes());
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

fn reserved(bench: &mut Bench, cdb: &[u8], list: &[u8]) -> Answer {
    let Outcome::Reserve(request) = bench.send_list(cdb, list) else {
        panic!("{cdb:02x?} is a request to the reservations");
    };
    let who = bench.nexus.clone();
    let result = bench.apply(&who, &request);
    Answer::reserved(result.as_ref().map_err(|refusal| *refusal))
}

#[test]
fn persistent_reservations_from_byte_to_byte() {
    let mut bench = Bench::new();
    let register = keys(0, 0x0102_0304_0506_0708, 0x01);
    assert_eq!(
        reserved(&mut bench, &reserve_out(0, 0, 24), &register),
        Answer::GOOD
    );
    let taken = reserved(
        &mut bench,
        &reserve_out(1, 5, 24),
        &keys(0x0102_0304_0506_0708, 0, 0),
    );
    assert_eq!(taken, Answer::GOOD);
    let read = |bench: &mut Bench, action| bench.read(&[0x5E, action, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(
        read(&mut bench, 0),
        [0, 0, 0, 1, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]
    );
    let reservation = read(&mut bench, 1);
    assert_eq!(
        reservation[..16],
        [0, 0, 0, 1, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8]
    );
    assert_eq!(reservation[16..], [0, 0, 0, 0, 0, 5, 0, 0]);
    assert_eq!(read(&mut bench, 2), [0, 8, 0x1D, 0x81, 0xEA, 1, 0, 0]);
    let full = read(&mut bench, 3);
    assert_eq!(full[4..8], [0, 0, 0, 24 + 32]);
    assert_eq!(
        full[16..32],
        [0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 32]
    );
    assert_eq!(&full[32..], bench.nexus.initiator.transport_id());
    bench.nexus = nexus("b");
    assert_eq!(bench.send(&cdb10(0x2A, 0, 0, 1)), CONFLICT);
    assert!(matches!(
        bench.send(&cdb10(0x28, 0, 0, 1)),
        Outcome::Disk(_)
    ));
    assert_eq!(
        bench.send(&cdb10(0x42, 0, 0, 24)),
        CONFLICT,
        "a fenced node must not unmap"
    );
    assert_eq!(
        bench.send(&cdb10(0x41, 0, 0, 1)),
        CONFLICT,
        "nor write zeroes"
    );
    assert_eq!(bench.send(&[0x1B, 0, 0, 0, 0, 0]), CONFLICT);
    assert_eq!(bench.send(&[0x1B, 0, 0, 0, 1, 0]), GOOD);
    assert_eq!(bench.send(&[0x1E, 0, 0, 0, 1, 0]), CONFLICT);
    let stranger = reserved(&mut bench, &reserve_out(2, 5, 24), &keys(0, 0, 0));
    assert_eq!(stranger, Answer::CONFLICT);
}

#[test]
fn read_keys_is_cut_and_its_length_is_not() {
    let mut bench = Bench::new();
    reserved(&mut bench, &reserve_out(6, 0, 24), &keys(0, 9, 0));
    let cut = bench.read(&[0x5E, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    assert_eq!(cut, [0, 0, 0, 1, 0, 0, 0, 8]);
}

#[test]
fn parameter_lists_of_persistent_reserve_out_have_one_length() {
    let mut bench = Bench::new();
    let list = vec![0; 256];
    for action in 0..8 {
        for length in (0..=255u8).filter(|length| *length != 24) {
            let outcome = bench.send_list(&reserve_out(action, 5, length), &list[..length.into()]);
            let error = sense(outcome);
            if action < 7 {
                assert_eq!(error.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
            }
        }
        let short = bench.send_list(&reserve_out(action, 5, 24), &list[..23]);
        assert_eq!(
            sense(short).code,
            AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
        );
    }
    let huge = bench.sense(&[0x5F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]);
    assert_eq!(huge.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
}

#[test]
fn fields_of_persistent_reserve_out_are_pointed_at() {
    let mut bench = Bench::new();
    let list = keys(0, 1, 0);
    let kind = bench.send_list(&reserve_out(1, 2, 24), &list);
    assert_eq!(sense(kind), Sense::field_in_cdb(2, Some(3)));
    let scope = bench.send_list(&reserve_out(4, 0x15, 24), &list);
    assert_eq!(sense(scope), Sense::field_in_cdb(2, Some(7)));
    let reserved_bit = bench.send_list(&reserve_out(0, 0, 24), &keys(0, 1, 0x80));
    assert_eq!(sense(reserved_bit), Sense::field_in_parameters(20, Some(7)));
    let others = bench.send_list(&reserve_out(6, 0, 24), &keys(0, 1, 0x08));
    assert_eq!(sense(others), Sense::field_in_parameters(20, Some(3)));
    bench.disk.stores_reservations = false;
    let stored = bench.send_list(&reserve_out(0, 0, 24), &keys(0, 1, 0x01));
    assert_eq!(sense(stored), Sense::field_in_parameters(20, Some(0)));
    let refused = Answer::reserved(Err(Refusal::InvalidRelease));
    let code = AdditionalSense::INVALID_RELEASE_OF_RESERVATION;
    assert_eq!(refused.sense, Some(Sense::illegal(code)));
}

#[test]
fn registering_other_initiators_and_moving_to_one() {
    let mut bench = Bench::new();
    let other = nexus("b");
    let id = other.initiator.transport_id().to_vec();
    let id_bytes = u8::try_from(id.len()).unwrap();
    let mut list = keys(0, 7, 0x08);
    list.extend([0, 0, 0, id_bytes]);
    list.extend(&id);
    let cdb = reserve_out(0, 0, 28 + id_bytes);
    assert_eq!(reserved(&mut bench, &cdb, &list), Answer::GOOD);
    assert!(bench.reservations.standing(&other).registered);
    list[27] += 1;
    let longer = sense(bench.send_list(&cdb, &list));
    assert_eq!(longer.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    list[27] -= 1;
    list[28] = 0x46;
    let format = sense(bench.send_list(&cdb, &list));
    assert_eq!(format, Sense::field_in_parameters(28, None));

    reserved(&mut bench, &reserve_out(1, 3, 24), &keys(7, 0, 0));
    let mut list = keys(7, 8, 0);
    list[17..24].copy_from_slice(&[0x02, 0, 1, 0, 0, 0, id_bytes]);
    list.extend(&id);
    let cdb = reserve_out(7, 0, 24 + id_bytes);
    let mut no_port = list.clone();
    no_port[19] = 9;
    let error = sense(bench.send_list(&cdb, &no_port));
    assert_eq!(error, Sense::field_in_parameters(18, None));
    assert_eq!(reserved(&mut bench, &cdb, &list), Answer::GOOD);
    assert!(bench.reservations.standing(&other).holder);
    assert_eq!(bench.send(&cdb10(0x28, 0, 0, 1)), CONFLICT);
    assert_eq!(bench.reservations.kind(), Some(Kind::ExclusiveAccess));
}

#[test]
fn reserve_6_and_10_are_one() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.send(&[0x16, 0, 0, 0, 0, 0]),
        Outcome::Reserve(Request::LegacyReserve)
    );
    let release = bench.send(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(release, Outcome::Reserve(Request::LegacyRelease));
    bench.apply(&nexus("b"), &Request::LegacyReserve).unwrap();
    assert_eq!(bench.send(&TUR), CONFLICT);
    assert_eq!(bench.send(&[0x1A, 0, 0x3F, 0, 255, 0]), CONFLICT);
    assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0]).len(), 36);
}
