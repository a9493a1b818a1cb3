//! The stored form: what is read back, and that nothing damaged is.

use fabrix_proto::scsi::reservation::{Access, Initiator, Kind, Nexus, Reservations, StoredError};

use super::scsi_common::{Numbers, crc32c, nexus};
use super::{B_KEY, cluster, persistently, register, stored};

#[test]
fn what_is_stored_is_read_back() {
    let (state, bytes) = stored();
    let read = Reservations::from_bytes(&bytes, crc32c).unwrap();
    assert_eq!(read.registrants(), state.registrants());
    assert_eq!((read.kind(), read.persists()), (state.kind(), true));
    assert_eq!(read.generation(), 0);
    assert!(read.standing(&nexus("a")).holder);
    assert!(!read.may(Access::Read, &nexus("stranger")));
}

#[test]
fn without_aptpl_nothing_is_stored_and_taking_it_back_is() {
    let (state, _) = cluster(Kind::ExclusiveAccess);
    let bytes = state.to_bytes(crc32c);
    assert_eq!(
        Reservations::from_bytes(&bytes, crc32c),
        Ok(Reservations::new())
    );
    let (mut state, _) = stored();
    let change = state.apply(&nexus("b"), &register(B_KEY)).unwrap();
    assert!(
        change.store && !state.persists(),
        "the stored state has to go"
    );
    assert!(!state.apply(&nexus("b"), &register(B_KEY)).unwrap().store);
}

#[test]
fn every_cut_and_every_flipped_bit_of_the_stored_form_is_refused() {
    let (_, bytes) = stored();
    for end in 0..bytes.len() {
        assert!(
            Reservations::from_bytes(&bytes[..end], crc32c).is_err(),
            "{end}"
        );
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Reservations::from_bytes(&flipped, crc32c).is_err(), "{bit}");
    }
}

#[test]
fn a_right_checksum_over_wrong_contents_is_refused() {
    fn any(_: &[u8]) -> u32 {
        0
    }
    let (_, mut bytes) = stored();
    let end = bytes.len() - 4;
    bytes[end..].fill(0);
    assert!(Reservations::from_bytes(&bytes, any).is_ok());
    for (at, value) in [(8, 2), (9, 7), (10, 1), (11, 3), (11, 5), (12 + 8, 0)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let refused = Reservations::from_bytes(&wrong, any);
        assert_eq!(refused, Err(StoredError::Inconsistent), "{at}");
    }
    let mut numbers = Numbers(0xD15C);
    for _ in 0..20_000 {
        let mut wrong = bytes.clone();
        let at = usize::try_from(numbers.next()).unwrap() % (end - 8) + 8;
        wrong[at] = numbers.bytes(1)[0];
        if let Ok(taken) = Reservations::from_bytes(&wrong, any) {
            assert_eq!(
                taken.to_bytes_for_others(any),
                wrong,
                "taken and never written"
            );
        }
    }
}

#[test]
fn a_stored_registration_that_stands_there_twice_is_refused() {
    let (_, bytes) = stored();
    // The last registrant's entry: key, two flags, port, length of the TransportID, TransportID.
    let entry_bytes = 8 + 2 + 2 + 2 + Initiator::nvme([7; 16]).transport_id().len();
    let mut twice = bytes[..bytes.len() - 4].to_vec();
    twice[11] += 1;
    twice.extend_from_within(twice.len() - entry_bytes..);
    twice.extend(crc32c(&twice).to_be_bytes());
    let read = Reservations::from_bytes(&twice, crc32c);
    assert_eq!(read, Err(StoredError::Inconsistent));
}

#[test]
fn an_initiator_whose_name_contains_the_separator_is_read_back() {
    let strange = Nexus {
        initiator: Initiator::iscsi("iqn.x:a,i,0x40000000", [0x40, 0, 0, 1, 0, 0]),
        port: 1,
    };
    let (mut state, _) = stored();
    state.apply(&strange, &persistently(7)).unwrap();
    let bytes = state.to_bytes(crc32c);
    let read = Reservations::from_bytes(&bytes, crc32c).unwrap();
    assert_eq!(read.key_of(&strange), Some(7));
}

#[test]
fn transport_ids_are_read_back_and_in_one_spelling() {
    let initiator = Initiator::iscsi("iqn.x:a", [0x40, 0xAB, 0, 1, 0, 0]);
    let id = initiator.transport_id();
    assert_eq!(&id[..4], [0x45, 0, 0, 28]);
    assert_eq!(&id[4..28], b"iqn.x:a,i,0x40ab00010000");
    let mut capitals = id.to_vec();
    capitals[4 + 12..].make_ascii_uppercase();
    capitals.push(0xEE);
    let (read, rest) = Initiator::parse(&capitals).unwrap();
    assert_eq!((read, rest), (initiator, &[0xEE][..]));
    assert_eq!(
        format!("{:?}", nexus("z").initiator),
        "iqn.x:z,i,0x400000010000"
    );
}

#[test]
fn broken_transport_ids_are_refused() {
    let id = nexus("a").initiator.transport_id().to_vec();
    for end in 0..id.len() {
        assert!(Initiator::parse(&id[..end]).is_err());
    }
    for (at, value) in [
        (0, 0x05),
        (0, 0x46),
        (3, 16),
        (3, 25),
        (12, 0xFF),
        (20, b'g'),
        (4, 0),
    ] {
        let mut wrong = id.clone();
        wrong[at] = value;
        assert!(Initiator::parse(&wrong).is_err(), "{at}");
    }
}
