//! CHAP, one-way and mutual: challenges, responses and their verification.
//!
//! No I/O and no randomness. The owner passes in random bytes for challenges. The bytes must come
//! from an unpredictable generator, and never repeat. A challenge lives as long as its login, which
//! the machine's deadline limits.
//!
//! Source: RFC 7143, section 12.1.3 "Challenge Handshake Authentication Protocol (CHAP)"; RFC 1994;
//! the IANA registry of CHAP algorithms.

mod proof;

pub use proof::ChapProof;

use core::fmt;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use md5::Md5;
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;

/// Hash algorithm of a response (CHAP_A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    /// MD5, which every initiator supports.
    Md5 = 5,
    /// SHA1.
    Sha1 = 6,
    /// SHA-256.
    Sha256 = 7,
    /// SHA3-256.
    Sha3 = 8,
}

impl Algorithm {
    /// All algorithms, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3, Self::Sha256, Self::Sha1, Self::Md5];

    /// The algorithm with this number, if it is supported.
    #[must_use]
    pub fn parse(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| u32::from(algorithm.number()) == number)
    }

    /// Number of the algorithm on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Length of a response in bytes.
    #[must_use]
    pub const fn response_bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3 => 32,
        }
    }

    /// The response to a challenge: the hash of identifier, secret and challenge, in this order.
    #[must_use]
    pub fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Response {
        let parts = [&[identifier][..], &secret.0, challenge];
        match self {
            Self::Md5 => hash::<Md5>(parts),
            Self::Sha1 => hash::<Sha1>(parts),
            Self::Sha256 => hash::<Sha256>(parts),
            Self::Sha3 => hash::<Sha3_256>(parts),
        }
    }
}

fn hash<H: sha2::Digest>(parts: [&[u8]; 3]) -> Response {
    let mut state = H::new();
    for part in parts {
        state.update(part);
    }
    Response::new(&state.finalize()).expect("a digest of at most 32 bytes")
}

/// Response to a challenge (CHAP_R).
#[derive(Clone, Copy, Debug)]
pub struct Response {
    bytes: [u8; RESPONSE_BYTES_MAX],
    length: usize,
}

impl Response {
    /// A response of these bytes. `None` if it is longer than the responses of all algorithms.
    #[must_use]
    pub fn new(response: &[u8]) -> Option<Self> {
        let mut bytes = [0; RESPONSE_BYTES_MAX];
        bytes.get_mut(..response.len())?.copy_from_slice(response);
        Some(Self {
            bytes,
            length: response.len(),
        })
    }

    /// Bytes of the response.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Whether two responses are equal, in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let differing = self.bytes.iter().zip(&other.bytes);
        let bits = differing.fold(0, |bits, (left, right)| bits | (left ^ right));
        // Without this the compiler may stop at the first difference.
        core::hint::black_box(bits) == 0 && self.length == other.length
    }
}

/// Secret of 12 to 255 bytes, shared by initiator and target. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// # Errors
    /// [`PolicyError::SecretLength`] below 12 bytes, which RFC 7143 (section 9.2.1) forbids without
    /// IPsec, or above 255.
    pub fn new(bytes: &[u8]) -> Result<Self, PolicyError> {
        match bytes.len() {
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => Ok(Self(bytes.into())),
            _ => Err(PolicyError::SecretLength),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A CHAP name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    name: Box<str>,
    secret: Secret,
}

impl Credentials {
    /// # Errors
    /// [`PolicyError::NameLength`] for a name (CHAP_N) of no or more than 255 bytes.
    pub fn new(name: &str, secret: Secret) -> Result<Self, PolicyError> {
        match name.len() {
            1..=NAME_BYTES_MAX => Ok(Self {
                name: name.into(),
                secret,
            }),
            _ => Err(PolicyError::NameLength),
        }
    }

    /// Whether both credentials have the same secret. With one secret, each side could answer in
    /// the other's place.
    #[must_use]
    pub fn shares_secret(&self, other: &Self) -> bool {
        self.secret == other.secret
    }
}

/// A challenge issued by this side for one login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    identifier: u8,
    bytes: Box<[u8]>,
}

impl Challenge {
    /// CHAP_I.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }

    /// CHAP_C.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The last challenges of one shard. Issues new challenges, and refuses repeated ones.
///
/// A generator that repeats its output is broken. An unseeded one does so after each start. Logins
/// are then refused, because an eavesdropper could replay an old answer.
#[derive(Clone, Debug, Default)]
pub struct Challenges {
    last: VecDeque<Box<[u8]>>,
}

impl Challenges {
    /// A challenge made of these random bytes.
    ///
    /// # Errors
    /// [`PolicyError::ChallengeLength`] outside 16 to 64 bytes. [`PolicyError::ChallengeRepeated`]
    /// if the bytes equal one of the last 256 challenges, or are all the same.
    pub fn issue(&mut self, identifier: u8, random: &[u8]) -> Result<Challenge, PolicyError> {
        if !(CHALLENGE_BYTES_MIN..=CHALLENGE_BYTES_MAX).contains(&random.len()) {
            return Err(PolicyError::ChallengeLength);
        }
        let constant = random.iter().all(|byte| *byte == random[0]);
        if constant || self.last.iter().any(|last| **last == *random) {
            return Err(PolicyError::ChallengeRepeated);
        }
        if self.last.len() == CHALLENGES_REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(random.into());
        Ok(Challenge {
            identifier,
            bytes: random.into(),
        })
    }
}

/// Required proof of an initiator, and the proof that the target can give.
#[derive(Clone, Debug)]
pub struct ChapPolicy {
    algorithms: Vec<Algorithm>,
    initiator: Credentials,
    target: Option<Credentials>,
    challenge: Challenge,
}

impl ChapPolicy {
    /// Policy of one login. `target` has the target's own credentials for mutual CHAP.
    ///
    /// # Errors
    /// [`PolicyError::SameSecret`] if both directions have one secret (RFC 7143, section 9.2.1).
    /// [`PolicyError::NoAlgorithm`] if `algorithms` is empty.
    pub fn new(
        algorithms: &[Algorithm],
        initiator: Credentials,
        target: Option<Credentials>,
        challenge: Challenge,
    ) -> Result<Self, PolicyError> {
        if target
            .as_ref()
            .is_some_and(|target| target.shares_secret(&initiator))
        {
            return Err(PolicyError::SameSecret);
        }
        if algorithms.is_empty() {
            return Err(PolicyError::NoAlgorithm);
        }
        Ok(Self {
            algorithms: algorithms.to_vec(),
            initiator,
            target,
            challenge,
        })
    }

    /// The challenge of this login.
    #[must_use]
    pub const fn challenge(&self) -> &Challenge {
        &self.challenge
    }

    /// The first of the initiator's algorithms (CHAP_A) that the policy allows.
    pub fn choose(&self, offered: impl Iterator<Item = u32>) -> Option<Algorithm> {
        offered
            .filter_map(Algorithm::parse)
            .find(|algorithm| self.algorithms.contains(algorithm))
    }

    /// Verifies the initiator's proof. Compares both name and response, even if one is wrong.
    ///
    /// # Errors
    /// The wrong part. On the wire, all of these are the same authentication failure.
    pub fn verify(
        &self,
        algorithm: Algorithm,
        name: &str,
        response: &Response,
    ) -> Result<(), AuthError> {
        let secret = &self.initiator.secret;
        let challenge = &self.challenge;
        let right = algorithm.response(challenge.identifier, secret, &challenge.bytes);
        let (proved, named) = (response.matches(&right), *name == *self.initiator.name);
        match (named, proved) {
            (true, true) => Ok(()),
            (false, _) => Err(AuthError::Name),
            (true, false) => Err(AuthError::Response),
        }
    }

    /// The target's name and its answer to the initiator's challenge.
    ///
    /// # Errors
    /// [`AuthError::Reflected`] if the challenge is the target's own.
    /// [`AuthError::ChallengeLength`] if it is empty or longer than 1024 bytes.
    /// [`AuthError::NotMutual`] without a secret for this direction.
    pub fn prove(
        &self,
        algorithm: Algorithm,
        identifier: u8,
        challenge: &[u8],
    ) -> Result<(&str, Response), AuthError> {
        if !(1..=PEER_CHALLENGE_BYTES_MAX).contains(&challenge.len()) {
            return Err(AuthError::ChallengeLength);
        }
        if *challenge == *self.challenge.bytes {
            return Err(AuthError::Reflected);
        }
        let target = self.target.as_ref().ok_or(AuthError::NotMutual)?;
        let response = algorithm.response(identifier, &target.secret, challenge);
        Ok((&target.name, response))
    }
}

/// Error in the own configuration, or in the own generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// A secret must have 12 to 255 bytes.
    SecretLength,
    /// A name must have 1 to 255 bytes.
    NameLength,
    /// The secrets of both directions are the same.
    SameSecret,
    /// No algorithm is allowed.
    NoAlgorithm,
    /// A challenge must have 16 to 64 bytes.
    ChallengeLength,
    /// The challenge was used before.
    ChallengeRepeated,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SecretLength => "a CHAP secret must have 12 to 255 bytes",
            Self::NameLength => "a CHAP name must have 1 to 255 bytes",
            Self::SameSecret => "the CHAP secrets of initiator and target must differ",
            Self::NoAlgorithm => "no CHAP algorithm is allowed",
            Self::ChallengeLength => "a CHAP challenge must have 16 to 64 bytes",
            Self::ChallengeRepeated => "the random bytes of a CHAP challenge came before",
        })
    }
}

impl core::error::Error for PolicyError {}

/// Error in the peer's proof, or in its challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// CHAP_N is not the expected name.
    Name,
    /// CHAP_R is not the answer to the challenge.
    Response,
    /// CHAP_C is this side's own challenge, reflected by the peer.
    Reflected,
    /// CHAP_C is empty or too long.
    ChallengeLength,
    /// CHAP_C without a configured secret for this direction.
    NotMutual,
}

impl AuthError {
    /// Explanation for the log. It does not reveal the expected value.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Name => "CHAP_N is not the name that was expected",
            Self::Response => "CHAP_R does not answer the challenge",
            Self::Reflected => "CHAP_C is our own challenge",
            Self::ChallengeLength => "CHAP_C is empty or longer than 1024 bytes",
            Self::NotMutual => "CHAP_C, but no secret of ours is configured",
        }
    }
}

/// Length of the longest response of all algorithms, in bytes.
pub const RESPONSE_BYTES_MAX: usize = 32;
/// Maximum length of a peer's challenge in bytes.
pub const PEER_CHALLENGE_BYTES_MAX: usize = 1024;
const SECRET_BYTES_MIN: usize = 12;
const SECRET_BYTES_MAX: usize = 255;
/// Maximum length of a name (CHAP_N) in bytes.
pub const NAME_BYTES_MAX: usize = 255;
const CHALLENGE_BYTES_MIN: usize = 16;
/// LIO and older initiators refuse longer challenges.
const CHALLENGE_BYTES_MAX: usize = 64;
const CHALLENGES_REMEMBERED: usize = 256;
