//! Security stage of a login on the initiator's side: method, algorithm and proofs.
//!
//! This file follows the order of the keys. `auth` computes and verifies the proofs. The target's
//! `login/security.rs` is the mirror.
//!
//! Source: RFC 7143, section 12.1.3.

use super::LoginFailure;
use crate::iscsi::auth::{
    Algorithm, ChapProof, PEER_CHALLENGE_BYTES_MAX, RESPONSE_BYTES_MAX, Response,
};
use crate::iscsi::keys::Key;
use crate::iscsi::text::{TextWriter, binary, number, pairs};

/// State of the authentication, by the content of the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// The request offered the authentication methods.
    Method,
    /// The request offered the algorithms of CHAP.
    Algorithm,
    /// The request proved the initiator's identity.
    Proof(Algorithm),
    /// All required proofs are given.
    Done,
}

impl Security {
    /// Processes the keys of one response, and writes those of the next request.
    pub(super) fn answer(
        self,
        text: &[u8],
        proof: Option<&ChapProof>,
        out: &mut TextWriter,
    ) -> Result<Self, LoginFailure> {
        match (self, proof) {
            (Self::Method, _) => method(text, proof, out),
            (Self::Algorithm, Some(proof)) => challenge(text, proof, out),
            (Self::Proof(algorithm), Some(proof)) if proof.is_mutual() => {
                proved(text, algorithm, proof).map(|()| Self::Done)
            }
            (Self::Proof(_) | Self::Done, _) => Ok(Self::Done),
            (Self::Algorithm, None) => Err(LoginFailure::Broken("CHAP, which was not offered")),
        }
    }
}

/// The method that the target has chosen. A missing key means no authentication.
fn method(
    text: &[u8],
    proof: Option<&ChapProof>,
    out: &mut TextWriter,
) -> Result<Security, LoginFailure> {
    match (value(text, Key::AuthMethod), proof) {
        (Some("CHAP"), Some(_)) => {
            let numbers = ChapProof::OFFER.map(|algorithm| algorithm.number());
            let [first, second, third, fourth] = numbers;
            let list = format_args!("{first},{second},{third},{fourth}");
            out.pair(Key::ChapA.name(), list);
            Ok(Security::Algorithm)
        }
        (Some("None") | None, proof) if proof.is_none_or(|proof| !proof.is_mutual()) => {
            Ok(Security::Done)
        }
        (Some("CHAP"), None) => Err(LoginFailure::Broken(
            "it wants CHAP; give a user and a secret, USER%SECRET@HOST in the address",
        )),
        _ => Err(LoginFailure::Broken("a method that was not offered")),
    }
}

fn challenge(
    text: &[u8],
    proof: &ChapProof,
    out: &mut TextWriter,
) -> Result<Security, LoginFailure> {
    let broken = || LoginFailure::Broken("CHAP_A, CHAP_I or CHAP_C is missing or has not its form");
    let algorithm = value(text, Key::ChapA).and_then(number);
    let algorithm = algorithm.and_then(Algorithm::parse).ok_or_else(broken)?;
    let identifier = value(text, Key::ChapI).and_then(number);
    let identifier = identifier.and_then(|identifier| u8::try_from(identifier).ok());
    let challenge = value(text, Key::ChapC)
        .and_then(|challenge| binary::decode(challenge, PEER_CHALLENGE_BYTES_MAX));
    let (identifier, challenge) = (
        identifier.ok_or_else(broken)?,
        challenge.ok_or_else(broken)?,
    );
    let (name, response) = proof.answer(algorithm, identifier, &challenge)?;
    out.pair(Key::ChapN.name(), name);
    out.pair(Key::ChapR.name(), binary::encode_hex(response.as_bytes()));
    if let Some(ours) = proof.challenge() {
        out.pair(Key::ChapI.name(), ours.identifier());
        out.pair(Key::ChapC.name(), binary::encode_hex(ours.bytes()));
    }
    Ok(Security::Proof(algorithm))
}

/// Verifies the target's proof. Its keys may come while the target stays in this stage, but must
/// come with the next response.
fn proved(text: &[u8], algorithm: Algorithm, proof: &ChapProof) -> Result<(), LoginFailure> {
    let broken = || LoginFailure::Broken("CHAP_N or CHAP_R is missing or has not its form");
    let name = value(text, Key::ChapN).ok_or_else(broken)?;
    let response = value(text, Key::ChapR)
        .and_then(|response| binary::decode(response, RESPONSE_BYTES_MAX))
        .and_then(|bytes| Response::new(&bytes))
        .ok_or_else(broken)?;
    Ok(proof.verify(algorithm, name, &response)?)
}

fn value(text: &[u8], key: Key) -> Option<&str> {
    let found = pairs(text).flatten().find(|pair| pair.key == key.name());
    found.map(|pair| pair.value)
}
