//! Text of the full-feature phase: SendTargets, and the few keys that may change after the login.
//!
//! One exchange runs at a time. A new first request discards the old exchange. An answer longer
//! than a PDU goes out in pieces, one for each request that quotes the target's tag.
//!
//! Source: RFC 7143, sections 11.10 "Text Request", 11.11 "Text Response"; appendix C "SendTargets
//! Operation".

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::FromZeros;
use zerocopy::byteorder::big_endian::U32;

use super::control::TAG_OF_NO_SLOT;
use super::{Event, Outcome, Target};
use crate::iscsi::framing::{Framing, segment_length, send};
use crate::iscsi::keys::{Key, Negotiation, Purpose, Reply};
use crate::iscsi::pdu::{BasicHeader, CONTINUE, FINAL, NO_TAG, Opcode, RejectReason, TextResponse};
use crate::iscsi::text::{TextBuffer, TextWriter, pairs};

/// Targets that a SendTargets request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All targets that this initiator may see.
    All,
    /// The target of this session.
    Session,
    /// The target of this name, if this initiator may see it.
    Named(Box<str>),
}

/// One exchange of text.
#[derive(Clone, Debug, Default)]
pub(super) struct TextExchange {
    itt: u32,
    ttt: Option<u32>,
    incoming: TextBuffer,
    /// Answer so far, while the owner of the connection lists the targets.
    waiting: Option<TextWriter>,
    outgoing: Vec<u8>,
}

/// Reason to reject a text request.
type Refused = RejectReason;

impl Target {
    pub(super) fn text_request<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        data: &[u8],
        out: &mut F,
    ) -> Outcome {
        self.leave(basic);
        let taken = self.take_text(basic, data, out);
        Ok(taken.unwrap_or_else(|reason| {
            self.text = TextExchange::default();
            self.send_reject(reason, out);
            None
        }))
    }

    fn take_text<F: Framing>(
        &mut self,
        basic: &BasicHeader,
        data: &[u8],
        out: &mut F,
    ) -> Result<Option<Event>, Refused> {
        let continues = basic.flags & CONTINUE != 0;
        if continues == basic.is_final() || basic.itt.get() == NO_TAG || self.text.waiting.is_some()
        {
            return Err(RejectReason::Protocol);
        }
        self.find_exchange(basic)?;
        if !self.text.outgoing.is_empty() {
            return match data.is_empty() && !continues {
                true => {
                    self.send_text_piece(out);
                    Ok(None)
                }
                false => Err(RejectReason::Protocol),
            };
        }
        let whole = self.text.incoming.push(data, continues);
        if whole.map_err(|_| RejectReason::Protocol)? {
            return self.answer_text(out);
        }
        self.send_text(0, &[], out);
        Ok(None)
    }

    /// Begins an exchange, or finds the exchange whose tags the request quotes.
    fn find_exchange(&mut self, basic: &BasicHeader) -> Result<(), Refused> {
        let (itt, ttt) = (basic.itt.get(), basic.ttt.get());
        if ttt == NO_TAG {
            self.text = TextExchange {
                itt,
                ..TextExchange::default()
            };
            return Ok(());
        }
        match self.text.ttt == Some(ttt) && self.text.itt == itt {
            true => Ok(()),
            false => Err(RejectReason::InvalidField),
        }
    }

    /// Answers a complete text, or reports `SendTargets` to the owner of the connection.
    fn answer_text<F: Framing>(&mut self, out: &mut F) -> Result<Option<Event>, Refused> {
        let incoming = core::mem::take(&mut self.text.incoming);
        let (mut said, mut scope, mut seen) = (TextWriter::default(), None, 0);
        for pair in pairs(incoming.bytes()) {
            let pair = pair.map_err(|_| RejectReason::Protocol)?;
            let Some(key) = Key::parse(pair.key) else {
                said.pair(pair.key, Reply::NotUnderstood);
                continue;
            };
            if seen & key.bit() != 0 {
                return Err(RejectReason::Protocol);
            }
            seen |= key.bit();
            match self.scope(key, pair.value) {
                Some(found) => scope = Some(found),
                None => self.declare_again(key, pair.value, &mut said),
            }
        }
        let Some(scope) = scope else {
            self.text.outgoing = said.into_bytes();
            self.send_text_piece(out);
            return Ok(None);
        };
        self.text.waiting = Some(said);
        Ok(Some(Event::SendTargets(scope)))
    }

    /// Scope of a SendTargets value. A discovery session accepts All or a name. A normal session
    /// accepts a name, or the empty value for its own target.
    fn scope(&self, key: Key, value: &str) -> Option<Scope> {
        match (key, value) {
            (Key::SendTargets, "All") if self.is_discovery() => Some(Scope::All),
            (Key::SendTargets, "All") => None,
            (Key::SendTargets, "") if !self.is_discovery() => Some(Scope::Session),
            (Key::SendTargets, "") => None,
            (Key::SendTargets, name) => Some(Scope::Named(name.to_ascii_lowercase().into())),
            _ => None,
        }
    }

    /// Answers a key after the login. Only declarations (MaxRecvDataSegmentLength) may change.
    fn declare_again(&mut self, key: Key, value: &str, said: &mut TextWriter) {
        let mut negotiation = Negotiation::resumed(self.limits.wishes, self.parameters);
        let reply = match key.purpose() {
            Purpose::Declared => negotiation.agree(key, value, false),
            _ => Reply::Reject,
        };
        self.parameters = negotiation.agreed();
        if reply != Reply::None {
            said.pair(key.name(), reply);
        }
    }

    /// Answers [`Event::SendTargets`] with targets and the addresses of each in the form of
    /// TargetAddress.
    pub fn answer_targets<'a, F: Framing>(
        &mut self,
        targets: impl IntoIterator<Item = (&'a str, &'a [&'a str])>,
        out: &mut F,
    ) {
        let Some(mut said) = self.text.waiting.take() else {
            return;
        };
        for (name, addresses) in targets {
            said.pair(Key::TargetName.name(), name);
            for address in addresses {
                said.pair(Key::TargetAddress.name(), address);
            }
        }
        self.text.outgoing = said.into_bytes();
        if !self.closed {
            self.send_text_piece(out);
        }
    }

    /// Sends the next piece of the answer. The last piece ends the exchange.
    fn send_text_piece<F: Framing>(&mut self, out: &mut F) {
        let most = self.parameters.initiator_segment_bytes as usize;
        let bytes = most.min(PIECE_BYTES).min(self.text.outgoing.len());
        let rest = self.text.outgoing.split_off(bytes);
        let piece = core::mem::replace(&mut self.text.outgoing, rest);
        if self.text.outgoing.is_empty() {
            self.send_text(FINAL, &piece, out);
            self.text = TextExchange::default();
        } else {
            self.send_text(CONTINUE, &piece, out);
        }
    }

    fn send_text<F: Framing>(&mut self, flags: u8, data: &[u8], out: &mut F) {
        let ttt = match flags & FINAL {
            0 => self.new_tag(TAG_OF_NO_SLOT),
            _ => NO_TAG,
        };
        self.text.ttt = Some(ttt);
        let mut header = TextResponse::new_zeroed();
        header.opcode = Opcode::TEXT_RESPONSE.0;
        header.flags = flags;
        header.data_bytes = segment_length(data);
        header.itt = U32::new(self.text.itt);
        header.ttt = U32::new(ttt);
        header.sequence = self.status_sequence();
        send(&header, data, out);
    }
}

/// Maximum length of one piece in bytes.
const PIECE_BYTES: usize = 8192;
