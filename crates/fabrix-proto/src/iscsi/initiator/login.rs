//! Initiator side of a login. Requests go out stage by stage until the session begins or fails.
//!
//! This file decides the content of requests and checks every response against the last request.
//! The machine sets the sequence numbers of the PDUs. `login/offer.rs` is the negotiation,
//! `login/security.rs` the authentication.
//!
//! Source: RFC 7143, section 6.3 "Login Phase", sections 11.12 and 11.13.

mod offer;
mod security;

use core::fmt;
use core::mem;

use alloc::boxed::Box;
use alloc::vec::Vec;

use self::offer::Offer;
pub(super) use self::offer::SEGMENT_BYTES;
use self::security::Security;
use super::targets::{DiscoveredPortal, portal};
use crate::iscsi::auth::{AuthError, ChapProof};
use crate::iscsi::keys::{Key, Parameters, Purpose};
use crate::iscsi::pdu::{CONTINUE, FINAL, LoginResponse, LoginStatus};
use crate::iscsi::text::{Pair, TextBuffer, TextWriter, pairs};

/// Names, session and authentication of a login.
#[derive(Clone, Debug)]
pub struct LoginConfig {
    /// Name of the initiator.
    pub initiator: Box<str>,
    /// Name of the target, or `None` for a discovery session.
    pub target: Option<Box<str>>,
    /// ISID: distinguishes this session from others of the same initiator. A login with the ISID of
    /// an older session ends that session.
    pub isid: [u8; 6],
    /// CHAP credentials for a target that requires them, and the proof that the target must give.
    pub auth: Option<Box<ChapProof>>,
    /// Whether to request header digests. A target that insists on them gets them anyway.
    pub header_digest: bool,
    /// Whether to request data digests. A target that insists on them gets them anyway.
    pub data_digest: bool,
    /// Whether the connection is one over RDMA. The session then needs RDMAExtensions and has no
    /// digests.
    pub rdma: bool,
}

/// Reason for a failed login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// The target refuses the login.
    Refused(LoginStatus),
    /// The target redirects the login to another portal.
    Moved {
        /// True for a permanent redirection, false for a temporary one.
        permanently: bool,
        /// Portal of the target.
        portal: DiscoveredPortal,
    },
    /// The target has not proved its identity.
    NotProved(AuthError),
    /// The target does not use a requested digest.
    NoDigest(Key),
    /// The target does not agree to RDMAExtensions, without which no data moves over RDMA.
    NoRdma,
    /// The target breaks the rules of the login.
    Broken(&'static str),
}

impl fmt::Display for LoginFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(
                f,
                "the target refuses the login: {} (status {:04x}h)",
                reason(*status),
                status.0
            ),
            Self::Moved {
                permanently,
                portal: DiscoveredPortal { address, port, .. },
            } => {
                let how = if *permanently { "for good" } else { "for now" };
                write!(
                    f,
                    "the target redirects us {how} to {address}, port {port}; connect to that address instead"
                )
            }
            Self::NotProved(error) => write!(
                f,
                "the target did not prove who it is ({}): check the name and the secret that it should have",
                error.sentence()
            ),
            Self::NoDigest(key) => write!(
                f,
                "the target does not use {}, which was asked for: allow it there, or connect without it",
                key.name()
            ),
            Self::NoRdma => f.write_str(
                "the target does not agree to RDMAExtensions, without which iSER moves no data: \
                 allow iSER there, or connect over TCP",
            ),
            Self::Broken(sentence) => {
                write!(f, "the target breaks the rules of a login: {sentence}")
            }
        }
    }
}

/// Explanation of a status, with a hint to the user.
fn reason(status: LoginStatus) -> &'static str {
    match status {
        LoginStatus::AUTHENTICATION_FAILURE => {
            "authentication failed; check the user and the secret, USER%SECRET@HOST in the address"
        }
        LoginStatus::FORBIDDEN => {
            "this initiator may not use it; allow this initiator's name there"
        }
        LoginStatus::NOT_FOUND | LoginStatus::REMOVED => {
            "there is no target of this name; `fabrix discover` lists those there are"
        }
        LoginStatus::UNSUPPORTED_VERSION => "it speaks no version of iSCSI that we speak",
        LoginStatus::TOO_MANY_CONNECTIONS => "it has too many connections",
        LoginStatus::MISSING_PARAMETER => "it misses a parameter",
        LoginStatus::SESSION_TYPE => "it has no sessions of this type",
        // Linux's target also sends this status for an unknown target name.
        LoginStatus::UNAVAILABLE => {
            "it does not work at the moment, or has no target of this name; `fabrix discover` lists them"
        }
        LoginStatus::OUT_OF_RESOURCES => "it has no room for another session",
        LoginStatus(other) if other >> 8 == 1 => {
            "it sends logins elsewhere and names no address that can be used"
        }
        LoginStatus(other) if other >> 8 == 3 => "it has a trouble of its own",
        _ => "it did not like the request",
    }
}

impl From<AuthError> for LoginFailure {
    fn from(error: AuthError) -> Self {
        Self::NotProved(error)
    }
}

/// Content of a Login Request, without its sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// T, CSG and NSG.
    pub(super) flags: u8,
    pub(super) isid: [u8; 6],
    pub(super) text: Vec<u8>,
}

/// Next step after a response.
pub(super) enum Next {
    /// Send this request.
    Say(Request),
    /// The session begins.
    Done(Parameters),
}

/// A stage of a login (CSG and NSG).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    Security = 0,
    Operational = 1,
}

impl Stage {
    /// T, CSG and NSG of a request to enter the next stage.
    const fn transit(self) -> u8 {
        match self {
            Self::Security => FINAL | Self::Operational as u8,
            Self::Operational => FINAL | (Self::Operational as u8) << CSG_SHIFT | FULL_FEATURE,
        }
    }
}

/// Initiator side of one login.
pub(super) struct Login {
    config: LoginConfig,
    stage: Stage,
    /// Whether the last request requested the next stage (T).
    asked: bool,
    security: Security,
    offer: Offer,
    parameters: Parameters,
    text: TextBuffer,
    /// Keys that were answered or declared, one bit each.
    seen: u64,
    responses: u8,
}

impl Login {
    pub(super) fn new(config: LoginConfig) -> Self {
        let offer = Offer {
            header_digest: config.header_digest,
            data_digest: config.data_digest,
            discovery: config.target.is_none(),
            rdma: config.rdma,
        };
        Self {
            config,
            stage: Stage::Security,
            asked: false,
            security: Security::Method,
            offer,
            parameters: Parameters::default(),
            text: TextBuffer::default(),
            seen: 0,
            responses: 0,
        }
    }

    /// The first request: both names, the session type, and the offered authentication methods.
    pub(super) fn first(&mut self) -> Request {
        let mut out = TextWriter::default();
        out.pair(Key::InitiatorName.name(), &self.config.initiator);
        match &self.config.target {
            Some(target) => {
                out.pair(Key::TargetName.name(), target);
                out.pair(Key::SessionType.name(), "Normal");
            }
            None => out.pair(Key::SessionType.name(), "Discovery"),
        }
        let methods = match &self.config.auth {
            None => "None",
            Some(proof) if proof.is_mutual() => "CHAP",
            Some(_) => "CHAP,None",
        };
        out.pair(Key::AuthMethod.name(), methods);
        self.say(self.config.auth.is_none(), out)
    }

    /// A request of this stage. `on` requests the next stage (T).
    fn say(&mut self, on: bool, text: TextWriter) -> Request {
        self.asked = on;
        Request {
            flags: match on {
                true => self.stage.transit(),
                false => (self.stage as u8) << CSG_SHIFT,
            },
            isid: self.config.isid,
            text: text.into_bytes(),
        }
    }

    /// Processes one response: its header and its data segment.
    pub(super) fn response(
        &mut self,
        header: &LoginResponse,
        segment: &[u8],
    ) -> Result<Next, Box<LoginFailure>> {
        self.step(header, segment).map_err(Box::new)
    }

    fn step(&mut self, header: &LoginResponse, segment: &[u8]) -> Result<Next, LoginFailure> {
        self.responses += 1;
        if self.responses > RESPONSES_MAX {
            return Err(LoginFailure::Broken("it goes on without end"));
        }
        let status = LoginStatus(header.status.get());
        if status != LoginStatus::SUCCESS {
            return Err(refusal(status, segment));
        }
        self.check_header(header)?;
        let continues = header.flags & CONTINUE != 0;
        let whole = self.text.push(segment, continues);
        if !whole.map_err(|error| LoginFailure::Broken(error.sentence()))? {
            return Ok(Next::Say(self.say(false, TextWriter::default())));
        }
        let text = mem::take(&mut self.text);
        let mut out = TextWriter::default();
        self.take_pairs(text.bytes(), &mut out)?;
        let goes_on = header.flags & FINAL != 0;
        match self.stage {
            Stage::Security => self.after_security(text.bytes(), goes_on, out),
            Stage::Operational => self.after_operational(goes_on, out),
        }
    }

    /// Checks that the response matches the request, and enters the requested stage or none.
    fn check_header(&self, header: &LoginResponse) -> Result<(), LoginFailure> {
        let flags = header.flags;
        if header.version_active != VERSION || header.itt.get() != super::LOGIN_TAG {
            return Err(LoginFailure::Broken("a version or a tag that is not ours"));
        }
        if flags >> CSG_SHIFT & STAGE_MASK != self.stage as u8 {
            return Err(LoginFailure::Broken("CSG is not the current stage"));
        }
        if flags & FINAL == 0 {
            return Ok(());
        }
        let same_way = flags & STAGE_MASK == self.stage.transit() & STAGE_MASK;
        if !self.asked || !same_way || flags & CONTINUE != 0 {
            let sentence = "T where it was not asked for, with another stage, or with C";
            return Err(LoginFailure::Broken(sentence));
        }
        Ok(())
    }

    /// Processes the keys of any stage, and writes the answers that they need to `out`.
    fn take_pairs(&mut self, text: &[u8], out: &mut TextWriter) -> Result<(), LoginFailure> {
        for pair in pairs(text) {
            let pair = pair.map_err(|error| LoginFailure::Broken(error.sentence()))?;
            self.take_pair(pair, out)?;
        }
        Ok(())
    }

    fn take_pair(&mut self, pair: Pair<'_>, out: &mut TextWriter) -> Result<(), LoginFailure> {
        let Some(key) = Key::parse(pair.key) else {
            out.pair(pair.key, "NotUnderstood");
            return Ok(());
        };
        if self.seen & key.bit() != 0 {
            return Err(LoginFailure::Broken("a key came twice"));
        }
        self.seen |= key.bit();
        match key.purpose() {
            Purpose::Operational if self.stage == Stage::Security => Err(LoginFailure::Broken(
                "a key that may not come in this stage",
            )),
            Purpose::Operational | Purpose::Declared => {
                self.offer.settle(key, pair.value, &mut self.parameters)
            }
            // The security stage reads its own keys later. The other keys need no answer.
            Purpose::Security | Purpose::Targets | Purpose::Leading | Purpose::FullFeature => {
                Ok(())
            }
        }
    }

    fn after_security(
        &mut self,
        text: &[u8],
        goes_on: bool,
        mut out: TextWriter,
    ) -> Result<Next, LoginFailure> {
        let proof = self.config.auth.as_deref();
        self.security = self.security.answer(text, proof, &mut out)?;
        if !goes_on {
            let is_last = matches!(self.security, Security::Proof(_) | Security::Done);
            return Ok(Next::Say(self.say(is_last, out)));
        }
        if self.security != Security::Done {
            return Err(LoginFailure::Broken(
                "it leaves the authentication unfinished",
            ));
        }
        self.stage = Stage::Operational;
        let mut out = TextWriter::default();
        self.offer.write(&mut out);
        Ok(Next::Say(self.say(true, out)))
    }

    fn after_operational(&mut self, goes_on: bool, out: TextWriter) -> Result<Next, LoginFailure> {
        if !goes_on {
            return Ok(Next::Say(self.say(true, out)));
        }
        self.offer.check(&self.parameters)?;
        Ok(Next::Done(Parameters {
            first_burst_bytes: self
                .parameters
                .first_burst_bytes
                .min(self.parameters.max_burst_bytes),
            ..self.parameters
        }))
    }
}

fn refusal(status: LoginStatus, segment: &[u8]) -> LoginFailure {
    let moved = [
        LoginStatus::MOVED_TEMPORARILY,
        LoginStatus::MOVED_PERMANENTLY,
    ];
    let address = pairs(segment)
        .flatten()
        .find(|pair| pair.key == Key::TargetAddress.name());
    match address.and_then(|pair| portal(pair.value)) {
        Some(portal) if moved.contains(&status) => LoginFailure::Moved {
            permanently: status == LoginStatus::MOVED_PERMANENTLY,
            portal,
        },
        _ => LoginFailure::Refused(status),
    }
}

/// The only version of the protocol.
const VERSION: u8 = 0;
/// Maximum number of responses. A login with CHAP has five. Text in several parts, or a slow
/// target, needs more.
const RESPONSES_MAX: u8 = 32;
const CSG_SHIFT: u8 = 2;
const STAGE_MASK: u8 = 3;
const FULL_FEATURE: u8 = 3;
