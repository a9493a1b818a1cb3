//! Target side of a login: stages, names, authentication and negotiation, request by request.
//!
//! This file knows the order of a login, and returns the parameters of a session. The owner of the
//! connection decides twice. After the first request, the owner admits the initiator or not
//! ([`Step::Authorize`]). After the authentication, the owner ends an older session of the same
//! initiator and numbers the new one ([`Step::Proved`]). The login builds the text of a response.
//! The machine sets the sequence numbers of its PDU.
//!
//! `login/leading.rs` reads the initiator's first request, `login/operational.rs` negotiates, and
//! `login/security.rs` authenticates.
//!
//! Source: RFC 7143, section 6.3 "Login Phase", sections 11.12 and 11.13.

mod leading;
mod operational;
mod security;

use core::mem;
use core::num::NonZeroU16;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::leading::{Leading, NAME_BYTES_MAX, name};
use self::security::Security;
use super::auth::ChapPolicy;
use super::keys::{Key, Negotiation, Parameters, Wishes};
use super::pdu::{CONTINUE, FINAL, LoginRequest, LoginStatus};
use super::text::{TextBuffer, TextWriter};

/// The owner's decision on a login.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The initiator may log in after authentication.
    Admit(Grant),
    /// The login is refused with this status.
    Refuse(LoginStatus),
    /// The login is redirected to another address.
    Moved {
        /// True for a permanent redirection, false for a temporary one.
        permanently: bool,
        /// `address:port` in the form of TargetAddress.
        address: Box<str>,
    },
}

/// Conditions of a login.
#[derive(Clone, Debug)]
pub struct Grant {
    /// TargetPortalGroupTag.
    pub portal_group_tag: u16,
    /// Required authentication.
    pub auth: Auth,
}

/// Authentication that an initiator needs.
#[derive(Clone, Debug)]
pub enum Auth {
    /// No authentication.
    None,
    /// Proof of a secret by CHAP.
    Chap(Box<ChapPolicy>),
}

/// A session that has begun.
#[derive(Clone, Debug)]
pub struct Session {
    /// Names and identity of the session from the first request.
    pub leading: Leading,
    /// TSIH.
    pub tsih: NonZeroU16,
    /// Negotiated parameters.
    pub parameters: Parameters,
}

/// Next step after a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send this response, and wait for the next request.
    Respond(Response),
    /// Ask the owner to decide on [`Login::leading`], and call [`Login::admit`].
    Authorize,
    /// The authentication is complete. The owner makes room for the session, and calls
    /// [`Login::enter`].
    Proved,
    /// Send this response. The session begins.
    Complete(Response, Box<Session>),
    /// Send this refusal, and end the connection.
    Refuse(Refusal),
}

/// Content of a Login Response, without its sequence numbers.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// T, CSG and NSG.
    pub flags: u8,
    /// TSIH, or zero before the last response.
    pub tsih: u16,
    /// The text. One PDU has room for it, because the length of the requests is limited.
    pub text: Vec<u8>,
}

/// Reason for a failed login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status for the initiator.
    pub status: LoginStatus,
    /// Explanation for the log.
    pub sentence: &'static str,
    /// Text of the response: the new address of a redirection.
    pub text: Vec<u8>,
}

impl Refusal {
    /// A refusal without text.
    #[must_use]
    pub const fn new(status: LoginStatus, sentence: &'static str) -> Self {
        Self {
            status,
            sentence,
            text: Vec::new(),
        }
    }

    const fn initiator_error(sentence: &'static str) -> Self {
        Self::new(LoginStatus::INITIATOR_ERROR, sentence)
    }
}

/// A stage of a login (CSG and NSG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    Security = 0,
    Operational = 1,
    FullFeature = 3,
}

impl Stage {
    fn parse(bits: u8) -> Result<Self, Refusal> {
        match bits & 3 {
            0 => Ok(Self::Security),
            1 => Ok(Self::Operational),
            3 => Ok(Self::FullFeature),
            _ => Err(Refusal::initiator_error("a stage that does not exist")),
        }
    }
}

/// ISID, TSIH and CID, which every request of one login repeats.
type Identity = ([u8; 6], u16, u16);

/// Target side of one login.
#[derive(Clone, Debug)]
pub struct Login {
    stage: Option<Stage>,
    /// Next stage that the current request requests (T and NSG).
    transit: Option<Stage>,
    identity: Option<Identity>,
    text: TextBuffer,
    leading: Option<Leading>,
    grant: Option<Grant>,
    security: Security,
    negotiation: Negotiation,
    /// Keys that have arrived, one bit each.
    seen: u64,
    requests: u8,
    responses: u8,
    declared: bool,
    /// The last response, while the owner chooses the session's number.
    last: Option<Response>,
}

impl Login {
    /// A login that has not begun.
    #[must_use]
    pub fn new(wishes: Wishes) -> Self {
        Self {
            stage: None,
            transit: None,
            identity: None,
            text: TextBuffer::default(),
            leading: None,
            grant: None,
            security: Security::default(),
            negotiation: Negotiation::new(wishes),
            seen: 0,
            requests: 0,
            responses: 0,
            declared: false,
            last: None,
        }
    }

    /// Names and identity of the session. `None` before the first request is complete.
    #[must_use]
    pub const fn leading(&self) -> Option<&Leading> {
        self.leading.as_ref()
    }

    /// Whether the owner has not yet answered [`Step::Authorize`].
    #[must_use]
    pub const fn awaits_admission(&self) -> bool {
        self.leading.is_some() && self.grant.is_none()
    }

    /// Whether the owner has not yet answered [`Step::Proved`].
    #[must_use]
    pub const fn awaits_number(&self) -> bool {
        self.last.is_some()
    }

    /// Processes one request: its header and its data segment.
    pub fn request(&mut self, header: &LoginRequest, segment: &[u8]) -> Step {
        self.step(header, segment).unwrap_or_else(Step::Refuse)
    }

    /// Continues with the owner's answer to [`Step::Authorize`].
    pub fn admit(&mut self, admission: Admission) -> Step {
        match admission {
            Admission::Refuse(status) => Step::Refuse(Refusal::new(status, not_admitted(status))),
            Admission::Moved {
                permanently,
                address,
            } => Step::Refuse(moved(permanently, &address)),
            Admission::Admit(grant) => {
                self.grant = Some(grant);
                self.respond().unwrap_or_else(Step::Refuse)
            }
        }
    }

    /// Continues with the owner's answer to [`Step::Proved`]: the session's number (TSIH), or the
    /// status of a refusal.
    pub fn enter(&mut self, number: Result<NonZeroU16, LoginStatus>) -> Step {
        let (Some(mut response), Some(leading)) = (self.last.take(), self.leading.clone()) else {
            let sentence = "a login that has proved nothing yet";
            return Step::Refuse(Refusal::initiator_error(sentence));
        };
        let tsih = match number {
            Ok(tsih) => tsih,
            Err(status) => {
                let sentence = "there is no room for the session";
                return Step::Refuse(Refusal::new(status, sentence));
            }
        };
        response.tsih = tsih.get();
        let session = Session {
            leading,
            tsih,
            parameters: self.negotiation.agreed(),
        };
        Step::Complete(response, Box::new(session))
    }

    fn step(&mut self, header: &LoginRequest, segment: &[u8]) -> Result<Step, Refusal> {
        self.requests += 1;
        if self.awaits_admission() || self.awaits_number() || self.requests > REQUESTS_MAX {
            let sentence = "a Login Request too many";
            return Err(Refusal::initiator_error(sentence));
        }
        self.check_identity(header)?;
        self.check_stages(header.flags)?;
        let continues = header.flags & CONTINUE != 0;
        let whole = self.text.push(segment, continues);
        if !whole.map_err(|error| Refusal::initiator_error(error.sentence()))? {
            return Ok(Step::Respond(Response {
                flags: header.flags & CSG_MASK,
                ..Response::default()
            }));
        }
        if self.leading.is_some() {
            return self.respond();
        }
        self.leading = Some(Leading::read(header, self.text.bytes())?);
        Ok(Step::Authorize)
    }

    /// Checks the version, and the identity of the session, which is the same in all requests.
    fn check_identity(&mut self, header: &LoginRequest) -> Result<(), Refusal> {
        if header.version_min > VERSION {
            let sentence = "no version of the protocol is common to both";
            return Err(Refusal::new(LoginStatus::UNSUPPORTED_VERSION, sentence));
        }
        let identity = (header.isid, header.tsih.get(), header.cid.get());
        if *self.identity.get_or_insert(identity) != identity {
            let sentence = "ISID, TSIH or CID differ from the first request's";
            return Err(Refusal::initiator_error(sentence));
        }
        if header.tsih.get() != 0 {
            let sentence = "a connection to an existing session, where each has one";
            return Err(Refusal::new(LoginStatus::NO_SUCH_SESSION, sentence));
        }
        Ok(())
    }

    /// Checks that CSG is the current stage, that NSG (with T) is a later one, and that T and C are
    /// not set together.
    fn check_stages(&mut self, flags: u8) -> Result<(), Refusal> {
        let current = Stage::parse(flags >> CSG_SHIFT)?;
        if current == Stage::FullFeature || *self.stage.get_or_insert(current) != current {
            return Err(Refusal::initiator_error("CSG is not the current stage"));
        }
        self.transit = None;
        if flags & FINAL == 0 {
            return Ok(());
        }
        let next = Stage::parse(flags)?;
        if next <= current || flags & CONTINUE != 0 {
            let sentence = "T with a stage that does not lie ahead, or with C";
            return Err(Refusal::initiator_error(sentence));
        }
        self.transit = Some(next);
        Ok(())
    }

    /// Answers a complete text.
    fn respond(&mut self) -> Result<Step, Refusal> {
        let grant = self.grant.clone().expect("asked after the first request");
        let stage = self.stage.expect("set by the first request");
        if matches!((stage, &grant.auth), (Stage::Operational, Auth::Chap(_)))
            && !self.security.is_satisfied(&grant.auth)
        {
            let sentence = "the login skips the authentication";
            return Err(Refusal::new(LoginStatus::AUTHENTICATION_FAILURE, sentence));
        }
        let mut out = TextWriter::default();
        let text = mem::take(&mut self.text);
        self.declare(stage, grant.portal_group_tag, &mut out);
        let given = self.take_pairs(stage, text.bytes(), &mut out)?;
        if stage == Stage::Security {
            self.security.answer(&given, &grant.auth, &mut out)?;
        }
        self.responses += 1;
        let ends = self.transit == Some(Stage::FullFeature);
        let discovery = self.leading.as_ref().is_some_and(|it| it.discovery);
        if ends && !discovery && self.negotiation.lacks_rdma_extensions() {
            let sentence = "RDMAExtensions is not Yes, on a connection over RDMA";
            return Err(Refusal::new(LoginStatus::MISSING_PARAMETER, sentence));
        }
        Ok(self.finish(stage, &grant, out))
    }

    /// Enters the next stage if the initiator requests it and the authentication permits it.
    fn finish(&mut self, stage: Stage, grant: &Grant, out: TextWriter) -> Step {
        let mut response = Response {
            flags: (stage as u8) << CSG_SHIFT,
            tsih: 0,
            text: out.into_bytes(),
        };
        let may_leave = stage != Stage::Security || self.security.is_satisfied(&grant.auth);
        let Some(next) = self.transit.filter(|_| may_leave) else {
            return Step::Respond(response);
        };
        response.flags |= FINAL | next as u8;
        self.stage = Some(next);
        if next != Stage::FullFeature {
            return Step::Respond(response);
        }
        self.last = Some(response);
        Step::Proved
    }
}

/// Explanation of the owner's refusal, for the log.
fn not_admitted(status: LoginStatus) -> &'static str {
    match status {
        LoginStatus::FORBIDDEN => "this initiator is not among those that may log in",
        LoginStatus::NOT_FOUND => "it asks for a target of another name",
        LoginStatus::UNAVAILABLE => "no session begins any more",
        _ => "the initiator may not log in",
    }
}

fn moved(permanently: bool, address: &str) -> Refusal {
    let mut text = TextWriter::default();
    text.pair(Key::TargetAddress.name(), address);
    let status = match permanently {
        true => LoginStatus::MOVED_PERMANENTLY,
        false => LoginStatus::MOVED_TEMPORARILY,
    };
    Refusal {
        status,
        sentence: "the target is at another address",
        text: text.into_bytes(),
    }
}

/// The only version of the protocol.
const VERSION: u8 = 0;
/// Maximum number of requests. A login with CHAP has four or five. Text in several parts needs
/// more.
const REQUESTS_MAX: u8 = 32;
const CSG_SHIFT: u8 = 2;
const CSG_MASK: u8 = 3 << CSG_SHIFT;
