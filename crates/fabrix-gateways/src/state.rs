//! The state that the gateways of a group share, and the text as which the cluster stores it.
//!
//! The text has one line for each fact, with words between single spaces:
//!
//! ```text
//! fabrix gateways 1
//! member NUMBER LIFE live|fenced CLIENT NEIGHBOUR NAME EXPORTS LISTENERS DISKS
//! owner GROUP NUMBER
//! wanted GROUP NUMBER
//! end
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Number of a gateway in its group, 1 to [`MEMBERS_MOST`].
pub type GatewayNumber = u16;

/// Most gateways of a group.
pub const MEMBERS_MOST: GatewayNumber = 16;

/// What the gateways of a group share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The gateways.
    pub members: BTreeMap<GatewayNumber, Member>,
    /// The gateway that serves each ANA group of disks.
    pub owners: BTreeMap<u32, GatewayNumber>,
    /// The gateway to which the owner of an ANA group is to give it.
    pub wanted: BTreeMap<u32, GatewayNumber>,
}

/// A gateway of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Counts how often a gateway has joined with this number. Each life has a client of its own.
    pub life: u64,
    /// True once the client was shut out, so that nothing of this life reaches a disk any more.
    pub fenced: bool,
    /// Address of the client by which its requests reach the disks, as the cluster names it.
    pub client: String,
    /// Address at which other gateways notice the end of its process.
    pub neighbour: String,
    /// What distinguishes this gateway from others, also after a restart.
    pub name: String,
    /// Names under which hosts see the disks, the same at each gateway.
    pub exports: String,
    /// URIs at which hosts reach it.
    pub listeners: Vec<String>,
    /// Its disks by namespace id, each as a word that is the same at each gateway.
    pub disks: BTreeMap<u32, String>,
}

/// CNTLIDs of a gateway's controllers. Two gateways, and two successive lives of one that has not
/// left in order, have no common one: so an id of a life that was cut off names no controller of
/// the present one. Who leaves in order has ended its controllers.
#[must_use]
pub fn controller_ids(number: GatewayNumber, life: u64) -> RangeInclusive<u16> {
    let half = u16::from(life.is_multiple_of(2));
    let first = (number - 1) * 2 * CONTROLLERS + half * CONTROLLERS + 1;
    first..=first + (CONTROLLERS - 1)
}

/// The life after another one.
pub(crate) const fn next_life(life: u64) -> u64 {
    life % LAST_LIFE + 1
}

/// The life before the first one again. It is even, because lives use two ranges of ids in turn.
const LAST_LIFE: u64 = 1 << 32;

/// Controllers of one life of a gateway.
const CONTROLLERS: u16 = 2047;
// CNTLIDs above FFEFh are reserved (Base Specification 2.3, "CNTLID").
const _: () = assert!(MEMBERS_MOST as u32 * 2 * CONTROLLERS as u32 <= 0xffef);

const FIRST_LINE: &str = "fabrix gateways 1";
const LAST_LINE: &str = "end";

impl State {
    /// CNTLIDs of controllers that execute nothing any more, of all gateways but one: those of
    /// clients that were shut out, and of lives before the present one.
    #[must_use]
    pub fn ended_controllers(&self, of_all_but: GatewayNumber) -> Vec<RangeInclusive<u16>> {
        let others = self
            .members
            .iter()
            .filter(|(number, _)| **number != of_all_but);
        let ids = others.flat_map(|(number, member)| {
            let earlier = (member.life > 1).then(|| controller_ids(*number, member.life - 1));
            let present = member.fenced.then(|| controller_ids(*number, member.life));
            earlier.into_iter().chain(present)
        });
        ids.collect()
    }

    /// The gateway of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<(GatewayNumber, &Member)> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.name == name);
        found.map(|(number, member)| (*number, member))
    }

    /// Reads the stored text.
    ///
    /// # Errors
    /// A sentence that names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
        let first = lines.next().unwrap_or_default();
        if first != FIRST_LINE {
            return Err(format!(
                "the first line is `{first}`, not `{FIRST_LINE}`: another version of Fabrix has written it"
            ));
        }
        if lines.next_back() != Some(LAST_LINE) {
            return Err(format!(
                "the last line is not `{LAST_LINE}`: the text is cut"
            ));
        }
        let mut state = Self::default();
        for line in lines {
            let read = state.read(line);
            read.ok_or_else(|| format!("`{line}` is no line of a group"))?;
        }
        Ok(state)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["owner", group, number] => {
                self.owners.insert(group.parse().ok()?, number_of(number)?);
            }
            ["wanted", group, number] => {
                self.wanted.insert(group.parse().ok()?, number_of(number)?);
            }
            ["member", number, ref words @ ..] => {
                self.members
                    .insert(number_of(number)?, Member::read(words)?);
            }
            _ => return None,
        }
        Some(())
    }
}

fn number_of(word: &str) -> Option<GatewayNumber> {
    let number = word.parse().ok()?;
    (1..=MEMBERS_MOST).contains(&number).then_some(number)
}

impl Member {
    fn read(words: &[&str]) -> Option<Self> {
        let [
            life,
            fenced,
            client,
            neighbour,
            name,
            exports,
            listeners,
            disks,
        ] = *words
        else {
            return None;
        };
        let disk = |word: &str| {
            let (nsid, uuid) = word.split_once('=')?;
            Some((nsid.parse().ok()?, uuid.to_owned()))
        };
        Some(Self {
            life: life.parse().ok().filter(|life| *life <= LAST_LIFE)?,
            fenced: match fenced {
                "live" => false,
                "fenced" => true,
                _ => return None,
            },
            client: client.to_owned(),
            exports: exports.to_owned(),
            neighbour: neighbour.to_owned(),
            name: name.to_owned(),
            listeners: listeners.split(',').map(str::to_owned).collect(),
            disks: disks.split(',').map(disk).collect::<Option<_>>()?,
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        for (number, member) in &self.members {
            writeln!(f, "member {number} {member}")?;
        }
        for (group, number) in &self.owners {
            writeln!(f, "owner {group} {number}")?;
        }
        for (group, number) in &self.wanted {
            writeln!(f, "wanted {group} {number}")?;
        }
        writeln!(f, "{LAST_LINE}")
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fenced = if self.fenced { "fenced" } else { "live" };
        let disks = self.disks.iter();
        let disks: Vec<String> = disks.map(|(nsid, uuid)| format!("{nsid}={uuid}")).collect();
        write!(
            f,
            "{} {fenced} {} {} {} {} {} {}",
            self.life,
            self.client,
            self.neighbour,
            self.name,
            self.exports,
            self.listeners.join(","),
            disks.join(",")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let member = |number: u64| Member {
            life: number,
            fenced: number == 2,
            client: format!("192.0.2.{number}:0/77"),
            exports: "nqn.a+iqn.a".to_owned(),
            neighbour: "192.0.2.1:4000".to_owned(),
            name: format!("machine/{number}"),
            listeners: vec!["nvme+tcp://192.0.2.1:4420".to_owned(); 2],
            disks: [(1, "a".to_owned()), (7, "b".to_owned())].into(),
        };
        State {
            members: [(1, member(1)), (16, member(2))].into(),
            owners: [(1, 1), (2, 16)].into(),
            wanted: [(2, 1)].into(),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let text = state().to_string();
        assert_eq!(State::parse(&text), Ok(state()));
        assert_eq!(
            State::parse(&State::default().to_string()),
            Ok(State::default())
        );
    }

    #[test]
    fn a_text_that_is_cut_or_changed_is_refused() {
        let text = state().to_string();
        let whole = text.trim_end().len();
        for end in 0..whole {
            assert!(State::parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        let member = "fabrix gateways 1\nmember 1 7 live a b c n d 1=e\nend";
        assert!(State::parse(member).is_ok());
        for bad in [
            "".to_owned(),
            "fabrix gateways 2\nend".to_owned(),
            "fabrix gateways 1\nowner 1\nend".to_owned(),
            "fabrix gateways 1\nowner 1 17\nend".to_owned(),
            member.replace("live", "alive"),
            member.replace("member 1", "member 0"),
            member.replace("1=e", "1"),
            member.replace(" n ", " n n "),
            member.replace('7', &u64::MAX.to_string()),
        ] {
            assert!(State::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_two_gateways_and_no_two_successive_lives_have_a_controller_id_in_common() {
        let ranges: Vec<_> = (1..=MEMBERS_MOST)
            .flat_map(|number| [controller_ids(number, 5), controller_ids(number, 6)])
            .collect();
        for (index, one) in ranges.iter().enumerate() {
            for other in &ranges[..index] {
                assert!(one.end() < other.start() || other.end() < one.start());
            }
        }
        assert_eq!(controller_ids(1, 1), controller_ids(1, 3));
    }
}
