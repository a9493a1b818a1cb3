//! Initiator side of CHAP: its proof to a target, and the proof that it requires.
//!
//! The mirror of [`ChapPolicy`](super::ChapPolicy), with the same rules: different secrets for both
//! directions, and no answer to a reflected challenge.
//!
//! Source: RFC 7143, sections 9.2.1 and 12.1.3.

use super::{
    Algorithm, AuthError, Challenge, Credentials, PEER_CHALLENGE_BYTES_MAX, PolicyError, Response,
};

/// The initiator's proof in one login, and the proof that the target must give.
#[derive(Clone, Debug)]
pub struct ChapProof {
    initiator: Credentials,
    target: Option<(Credentials, Challenge)>,
}

impl ChapProof {
    /// The offered algorithms, in this order.
    ///
    /// SHA-256 is last, because stgt mistakes its number for SHA1. With this order, stgt chooses
    /// MD5, and targets that support only SHA-256 still find it in the list.
    pub const OFFER: [Algorithm; 4] = [
        Algorithm::Sha3,
        Algorithm::Sha1,
        Algorithm::Md5,
        Algorithm::Sha256,
    ];

    /// `target` has the target's credentials and the challenge for it (mutual CHAP).
    ///
    /// # Errors
    /// [`PolicyError::SameSecret`] if both directions have one secret (RFC 7143, section 9.2.1).
    pub fn new(
        initiator: Credentials,
        target: Option<(Credentials, Challenge)>,
    ) -> Result<Self, PolicyError> {
        if target
            .as_ref()
            .is_some_and(|(target, _)| target.secret == initiator.secret)
        {
            return Err(PolicyError::SameSecret);
        }
        Ok(Self { initiator, target })
    }

    /// Whether the target must prove its identity.
    #[must_use]
    pub const fn is_mutual(&self) -> bool {
        self.target.is_some()
    }

    /// The challenge to the target in mutual CHAP.
    #[must_use]
    pub fn challenge(&self) -> Option<&Challenge> {
        self.target.as_ref().map(|(_, challenge)| challenge)
    }

    /// The initiator's name and its answer to the target's challenge.
    ///
    /// # Errors
    /// [`AuthError::Reflected`] if the challenge is the initiator's own.
    /// [`AuthError::ChallengeLength`] if it is empty or longer than 1024 bytes.
    pub fn answer(
        &self,
        algorithm: Algorithm,
        identifier: u8,
        challenge: &[u8],
    ) -> Result<(&str, Response), AuthError> {
        if !(1..=PEER_CHALLENGE_BYTES_MAX).contains(&challenge.len()) {
            return Err(AuthError::ChallengeLength);
        }
        if self
            .challenge()
            .is_some_and(|ours| *ours.bytes == *challenge)
        {
            return Err(AuthError::Reflected);
        }
        let response = algorithm.response(identifier, &self.initiator.secret, challenge);
        Ok((&self.initiator.name, response))
    }

    /// Verifies the target's proof. Compares both name and response, even if one is wrong.
    ///
    /// # Errors
    /// The wrong part, or [`AuthError::NotMutual`] if the target needs no proof.
    pub fn verify(
        &self,
        algorithm: Algorithm,
        name: &str,
        response: &Response,
    ) -> Result<(), AuthError> {
        let (target, challenge) = self.target.as_ref().ok_or(AuthError::NotMutual)?;
        let right = algorithm.response(challenge.identifier, &target.secret, &challenge.bytes);
        match (*name == *target.name, response.matches(&right)) {
            (true, true) => Ok(()),
            (false, _) => Err(AuthError::Name),
            (true, false) => Err(AuthError::Response),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Challenges, Secret};
    use super::*;

    fn credentials(name: &str, secret: &[u8]) -> Credentials {
        Credentials::new(name, Secret::new(secret).expect("long enough")).expect("a name")
    }

    fn mutual() -> ChapProof {
        let challenge = Challenges::default()
            .issue(7, b"sixteen bytes...")
            .expect("a challenge");
        let target = (credentials("target", b"target secret"), challenge);
        ChapProof::new(credentials("me", b"my own secret"), Some(target)).expect("two secrets")
    }

    #[test]
    fn our_own_challenge_is_not_answered() {
        let proof = mutual();
        let answer = proof.answer(Algorithm::Md5, 7, b"sixteen bytes...");
        assert!(matches!(answer, Err(AuthError::Reflected)));
        assert!(mutual().answer(Algorithm::Md5, 7, b"another").is_ok());
    }

    #[test]
    fn one_secret_for_both_directions_is_refused() {
        let (_, challenge) = mutual().target.expect("mutual");
        let same = ChapProof::new(
            credentials("me", b"the same secret"),
            Some((credentials("it", b"the same secret"), challenge)),
        );
        assert!(matches!(same, Err(PolicyError::SameSecret)));
    }

    #[test]
    fn a_target_is_known_by_its_name_and_its_secret() {
        let secret = Secret::new(b"target secret").expect("long enough");
        let right = Algorithm::Sha1.response(7, &secret, b"sixteen bytes...");
        let verify = |name, response| mutual().verify(Algorithm::Sha1, name, response);
        assert_eq!(verify("target", &right), Ok(()));
        assert_eq!(verify("another", &right), Err(AuthError::Name));
        let wrong = Algorithm::Sha1.response(8, &secret, b"sixteen bytes...");
        assert_eq!(verify("target", &wrong), Err(AuthError::Response));
    }
}
