//! The keys of a request, one by one: the stage in which each may come, and their negotiation.
//!
//! This file only collects the keys of the authentication for `security`. `keys` negotiates the
//! values.
//!
//! Source: RFC 7143, section 6.2 "Text Mode Negotiation", section 13.

use super::security::Given;
use super::{Login, Refusal, Stage};
use crate::iscsi::keys::{Key, Purpose, Reply};
use crate::iscsi::text::{Pair, TextWriter, pairs};

impl Login {
    /// Writes the target's declarations: its portal group in the first response, and its segment
    /// size at the start of the operational stage.
    pub(super) fn declare(&mut self, stage: Stage, portal_group_tag: u16, out: &mut TextWriter) {
        let discovery = self.leading.as_ref().is_some_and(|it| it.discovery);
        if self.responses == 0 && !discovery {
            out.pair(Key::TargetPortalGroupTag.name(), portal_group_tag);
        }
        if stage == Stage::Operational && !self.declared {
            self.declared = true;
            if let Some(bytes) = self.negotiation.declare_segment_bytes() {
                out.pair(Key::MaxRecvDataSegmentLength.name(), bytes);
            }
        }
    }

    /// Negotiates the keys of a text, and returns those of the authentication.
    ///
    /// MaxBurstLength goes first, because it limits FirstBurstLength.
    pub(super) fn take_pairs<'a>(
        &mut self,
        stage: Stage,
        text: &'a [u8],
        out: &mut TextWriter,
    ) -> Result<Given<'a>, Refusal> {
        let mut given = Given::default();
        let is_burst = |pair: &Pair<'_>| pair.key == Key::MaxBurstLength.name();
        for first_round in [true, false] {
            for pair in pairs(text) {
                let pair = pair.map_err(|error| Refusal::initiator_error(error.sentence()))?;
                if is_burst(&pair) == first_round {
                    self.take_pair(stage, pair, &mut given, out)?;
                }
            }
        }
        Ok(given)
    }

    fn take_pair<'a>(
        &mut self,
        stage: Stage,
        pair: Pair<'a>,
        given: &mut Given<'a>,
        out: &mut TextWriter,
    ) -> Result<(), Refusal> {
        let Some(key) = Key::parse(pair.key) else {
            out.pair(pair.key, Reply::NotUnderstood);
            return Ok(());
        };
        if self.seen & key.bit() != 0 {
            return Err(Refusal::initiator_error("a key came twice"));
        }
        self.seen |= key.bit();
        match key.purpose() {
            Purpose::Leading if self.responses == 0 => {}
            Purpose::Security if stage == Stage::Security => given.put(key, pair.value),
            Purpose::Leading | Purpose::Security => {
                let sentence = "a key that may not come in this stage";
                return Err(Refusal::initiator_error(sentence));
            }
            Purpose::Operational if stage == Stage::Operational => self.agree(key, pair.value, out),
            Purpose::Declared => self.agree(key, pair.value, out),
            Purpose::Operational | Purpose::FullFeature | Purpose::Targets => {
                out.pair(key.name(), Reply::Reject);
            }
        }
        Ok(())
    }

    fn agree(&mut self, key: Key, value: &str, out: &mut TextWriter) {
        let discovery = self.leading.as_ref().is_some_and(|it| it.discovery);
        let reply = self.negotiation.agree(key, value, discovery);
        if reply != Reply::None {
            out.pair(key.name(), reply);
        }
    }
}
