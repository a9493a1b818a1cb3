//! Security stage of a login on the target's side: method, algorithm and proofs.
//!
//! This file follows the order of the keys. `auth.rs` computes and verifies the proofs. Every
//! failure has the same status on the wire, so that a peer does not learn which part was wrong.
//!
//! Source: RFC 7143, section 12.1.3.

use super::{Auth, Refusal};
use crate::iscsi::auth::{
    Algorithm, ChapPolicy, NAME_BYTES_MAX, PEER_CHALLENGE_BYTES_MAX, RESPONSE_BYTES_MAX, Response,
};
use crate::iscsi::keys::Key;
use crate::iscsi::pdu::LoginStatus;
use crate::iscsi::text::{binary, list, number};

use crate::iscsi::text::TextWriter;

/// The authentication keys of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given<'a> {
    method: Option<&'a str>,
    algorithm: Option<&'a str>,
    identifier: Option<&'a str>,
    challenge: Option<&'a str>,
    name: Option<&'a str>,
    response: Option<&'a str>,
}

impl<'a> Given<'a> {
    pub(super) fn put(&mut self, key: Key, value: &'a str) {
        let place = match key {
            Key::AuthMethod => &mut self.method,
            Key::ChapA => &mut self.algorithm,
            Key::ChapI => &mut self.identifier,
            Key::ChapC => &mut self.challenge,
            Key::ChapN => &mut self.name,
            _ => &mut self.response,
        };
        *place = Some(value);
    }

    /// Presence of the keys, in the order of the fields.
    fn present(&self) -> [bool; 6] {
        [
            self.method,
            self.algorithm,
            self.identifier,
            self.challenge,
            self.name,
            self.response,
        ]
        .map(|value| value.is_some())
    }
}

/// State of the authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Security {
    /// No method is agreed.
    #[default]
    Start,
    /// CHAP: the initiator's list of algorithms comes next.
    Algorithm,
    /// CHAP: the initiator's answer to the target's challenge comes next.
    Proof(Algorithm),
    /// All required proofs are given.
    Done,
}

impl Security {
    /// Whether the authentication permits the next stage.
    pub(super) fn is_satisfied(self, auth: &Auth) -> bool {
        match auth {
            Auth::None => matches!(self, Self::Start | Self::Done),
            Auth::Chap(_) => self == Self::Done,
        }
    }

    /// Answers the keys of one request.
    pub(super) fn answer(
        &mut self,
        given: &Given<'_>,
        auth: &Auth,
        out: &mut TextWriter,
    ) -> Result<(), Refusal> {
        *self = match (*self, auth, given.present()) {
            (Self::Start, Auth::None, NOTHING) => Self::Start,
            (Self::Start, Auth::None, METHOD) => agree(given, "None", Self::Done, out)?,
            (Self::Start, Auth::Chap(_), METHOD) => agree(given, "CHAP", Self::Algorithm, out)?,
            (Self::Algorithm, Auth::Chap(policy), ALGORITHM) => challenge(given, policy, out)?,
            (Self::Proof(algorithm), Auth::Chap(policy), PROOF | MUTUAL) => {
                prove(given, algorithm, policy, out)?
            }
            (Self::Done, _, NOTHING) => Self::Done,
            _ => return Err(failure("the keys are not those of this step")),
        };
        Ok(())
    }
}

/// Chooses the method if the initiator's list has it.
fn agree(
    given: &Given<'_>,
    method: &'static str,
    next: Security,
    out: &mut TextWriter,
) -> Result<Security, Refusal> {
    let offered = given.method.unwrap_or_default();
    if !list(offered).any(|entry| entry == method) {
        return Err(failure("the initiator does not offer the method we need"));
    }
    out.pair(Key::AuthMethod.name(), method);
    Ok(next)
}

fn challenge(
    given: &Given<'_>,
    policy: &ChapPolicy,
    out: &mut TextWriter,
) -> Result<Security, Refusal> {
    let offered = list(given.algorithm.unwrap_or_default()).filter_map(number);
    let algorithm = policy
        .choose(offered)
        .ok_or_else(|| failure("no CHAP algorithm of the initiator is allowed"))?;
    let challenge = policy.challenge();
    out.pair(Key::ChapA.name(), algorithm.number());
    out.pair(Key::ChapI.name(), challenge.identifier());
    out.pair(Key::ChapC.name(), binary::encode_hex(challenge.bytes()));
    Ok(Security::Proof(algorithm))
}

/// Verifies the initiator's proof, and then gives the target's proof if the initiator requests it.
fn prove(
    given: &Given<'_>,
    algorithm: Algorithm,
    policy: &ChapPolicy,
    out: &mut TextWriter,
) -> Result<Security, Refusal> {
    let name = given.name.unwrap_or_default();
    if name.len() > NAME_BYTES_MAX {
        return Err(failure("CHAP_N is longer than 255 bytes"));
    }
    let response = binary::decode(given.response.unwrap_or_default(), RESPONSE_BYTES_MAX)
        .and_then(|bytes| Response::new(&bytes))
        .ok_or_else(|| failure("CHAP_R is no binary value of its length"))?;
    let verified = policy.verify(algorithm, name, &response);
    verified.map_err(|error| failure(error.sentence()))?;
    if let (Some(identifier), Some(challenge)) = (given.identifier, given.challenge) {
        answer_challenge(identifier, challenge, algorithm, policy, out)?;
    }
    Ok(Security::Done)
}

fn answer_challenge(
    identifier: &str,
    challenge: &str,
    algorithm: Algorithm,
    policy: &ChapPolicy,
    out: &mut TextWriter,
) -> Result<(), Refusal> {
    let identifier = number(identifier).and_then(|identifier| u8::try_from(identifier).ok());
    let identifier = identifier.ok_or_else(|| failure("CHAP_I is not below 256"))?;
    let challenge = binary::decode(challenge, PEER_CHALLENGE_BYTES_MAX)
        .ok_or_else(|| failure("CHAP_C is no binary value of up to 1024 bytes"))?;
    let proof = policy.prove(algorithm, identifier, &challenge);
    let (name, response) = proof.map_err(|error| failure(error.sentence()))?;
    out.pair(Key::ChapN.name(), name);
    out.pair(Key::ChapR.name(), binary::encode_hex(response.as_bytes()));
    Ok(())
}

const fn failure(sentence: &'static str) -> Refusal {
    Refusal::new(LoginStatus::AUTHENTICATION_FAILURE, sentence)
}

/// Valid sets of keys: method, algorithm, identifier, challenge, name, response.
const NOTHING: [bool; 6] = [false; 6];
const METHOD: [bool; 6] = [true, false, false, false, false, false];
const ALGORITHM: [bool; 6] = [false, true, false, false, false, false];
const PROOF: [bool; 6] = [false, false, false, false, true, true];
const MUTUAL: [bool; 6] = [false, false, true, true, true, true];
