//! The stable names of a disk. They are derived from a seed (a name or a path), so they are the
//! same after every restart, never zero and never random. Linux drops a namespace whose identity
//! changes, and ESXi refuses an identity of zeroes. A host that sees two disks with the same seed
//! takes them for one disk.

use sha2::{Digest, Sha256};

/// The names of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's name for the disk.
    pub name: String,
    /// A UUID of version 8 (custom). Source: RFC 9562, section 5.8.
    pub uuid: [u8; 16],
    /// NGUID, never zero. Its OUI is marked as locally administered.
    /// Source: NVMe Base Specification, "Namespace Globally Unique Identifier".
    pub nguid: [u8; 16],
    /// Serial number: 20 printable characters, capitals and digits.
    pub serial: String,
    /// Model, at most 40 printable characters.
    pub model: String,
}

impl Identity {
    /// Derives the names from `seed`. `name` is kept as it is. `model` loses its unprintable
    /// characters and is cut to 40 characters.
    #[must_use]
    pub fn derive(name: &str, seed: &str, model: &str) -> Self {
        Self {
            name: name.to_owned(),
            uuid: uuid(hash("uuid", seed)),
            nguid: nguid(hash("nguid", seed)),
            serial: serial(&hash("serial", seed)),
            model: model
                .chars()
                .filter(|c| (' '..='~').contains(c))
                .take(40)
                .collect(),
        }
    }

    /// The UUID as text, with hyphens.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        let mut text = String::with_capacity(36);
        for (index, byte) in self.uuid.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }
}

fn hash(purpose: &str, seed: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"fabrix disk identity 1\0");
    hash.update(purpose.as_bytes());
    hash.update(b"\0");
    hash.update(seed.as_bytes());
    hash.finalize().into()
}

fn first_16(hash: [u8; 32]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    bytes
}

fn uuid(hash: [u8; 32]) -> [u8; 16] {
    let mut uuid = first_16(hash);
    uuid[6] = uuid[6] & 0x0f | 0x80; // version 8
    uuid[8] = uuid[8] & 0x3f | 0x80; // the variant of RFC 9562
    uuid
}

/// Bytes 8 to 10 are the OUI: the local bit (0x02) is set and the group bit (0x01) is clear.
fn nguid(hash: [u8; 32]) -> [u8; 16] {
    let mut nguid = first_16(hash);
    nguid[8] = nguid[8] & 0xfc | 0x02;
    nguid
}

fn serial(hash: &[u8; 32]) -> String {
    let digits = hash
        .iter()
        .map(|byte| char::from(SERIAL_DIGITS[usize::from(byte % 32)]));
    SERIAL_PREFIX.chars().chain(digits).take(20).collect()
}

const SERIAL_PREFIX: &str = "FBX";

/// Base 32 without I, L, O and U, which are easily misread.
const SERIAL_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_same_seed_gives_the_same_identity_for_ever() {
        let identity = Identity::derive("a", "disk-a", "Fabrix RAM disk");
        assert_eq!(
            identity.uuid_text(),
            EXPECTED_UUID,
            "hosts would lose this disk"
        );
        assert_eq!(identity.serial, EXPECTED_SERIAL);
    }

    proptest! {
        #[test]
        fn identities_are_well_formed_for_any_seed(seed in ".*", other in ".*") {
            let identity = Identity::derive(&seed, &seed, &seed);
            prop_assert_eq!(identity.uuid[6] >> 4, 8);
            prop_assert_eq!(identity.uuid[8] >> 6, 2);
            prop_assert!(identity.nguid != [0; 16]);
            prop_assert_eq!(identity.serial.len(), 20);
            prop_assert!(identity.serial.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()));
            prop_assert!(identity.model.len() <= 40);
            let different = Identity::derive(&other, &other, "");
            prop_assert_eq!(seed == other, identity.uuid == different.uuid);
            prop_assert_eq!(seed == other, identity.nguid == different.nguid);
        }
    }

    const EXPECTED_UUID: &str = "5b9478f1-131f-884d-92dc-0df354879c75";
    const EXPECTED_SERIAL: &str = "FBXBQ00T62QEEYPASGV5";
}
