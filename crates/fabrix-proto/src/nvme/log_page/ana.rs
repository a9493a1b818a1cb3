//! Asymmetric Namespace Access log page (0Ch): a controller writes it, a host looks up a namespace.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Window;
use crate::nvme::ana::{ANA_GROUPS_MAX, AnaState};
use crate::nvme::subsystem::Authorized;

wire! {
    /// Header of the Asymmetric Namespace Access log page (0Ch), 16 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Asymmetric Namespace Access Log Page".
    pub struct AnaHeader: 16 bytes {
        /// CHGCNT: number of changes of the page.
        pub change_count: U64,
        /// Number of descriptors.
        pub groups @ 8: U16,
        reserved_10: [u8; 6],
    }

    /// ANA Group Descriptor without its namespace ids, 32 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "ANA Group Descriptor format".
    pub struct AnaDescriptor: 32 bytes {
        /// ANAGID.
        pub group: U32,
        /// NNV: number of namespace ids behind the descriptor. Zero if the host wants groups only.
        pub namespaces @ 4: U32,
        /// CHGCNT: number of changes of the group.
        pub change_count @ 8: U64,
        /// ANAS: [`AnaState::code`](crate::nvme::ana::AnaState::code).
        pub state @ 16: u8,
        reserved_17: [u8; 15],
    }
}

/// LSP bit 0 (RGO): the page has no namespace ids.
pub const ANA_GROUPS_ONLY: u8 = 1 << 0;

/// Numbers of changes that a controller has reported since it was made.
#[derive(Clone, Debug, Default)]
pub struct AnaChanges {
    page: u64,
    groups: [u64; ANA_GROUPS_MAX as usize],
}

impl AnaChanges {
    /// Counts a change of a group's state.
    pub fn count(&mut self, group: u32) {
        if let Some(count) = self.of_mut(group) {
            *count += 1;
            self.page += 1;
        }
    }

    fn of_mut(&mut self, group: u32) -> Option<&mut u64> {
        let at = usize::try_from(group).ok()?.checked_sub(1)?;
        self.groups.get_mut(at)
    }

    fn of(&self, group: u32) -> u64 {
        let at = usize::try_from(group).unwrap_or(0).checked_sub(1);
        at.and_then(|at| self.groups.get(at)).copied().unwrap_or(0)
    }
}

/// Length of the page in bytes.
#[must_use]
pub fn ana_bytes(view: &Authorized, groups_only: bool) -> u64 {
    let ids = if groups_only {
        0
    } else {
        view.namespaces().len() as u64
    };
    HEADER_BYTES + view.ana_groups().count() as u64 * DESCRIPTOR_BYTES + ids * ID_BYTES
}

/// Asymmetric Namespace Access (0Ch): a descriptor for each group that has a namespace of the
/// subsystem, in ascending order. `groups_only`: without the namespace ids.
pub fn ana(window: &mut Window<'_>, view: &Authorized, changes: &AnaChanges, groups_only: bool) {
    let header = AnaHeader {
        change_count: U64::new(changes.page),
        groups: U16::new(u16::try_from(view.ana_groups().count()).unwrap_or(u16::MAX)),
        ..AnaHeader::new_zeroed()
    };
    window.put(0, header.as_bytes());
    let mut at = HEADER_BYTES;
    for group in view.ana_groups() {
        at = put_group(window, at, (view, group), changes.of(group), groups_only);
    }
}

/// Writes a descriptor at offset `at`. Returns the offset of the next one.
fn put_group(
    window: &mut Window<'_>,
    at: u64,
    (view, group): (&Authorized, u32),
    change_count: u64,
    groups_only: bool,
) -> u64 {
    let namespaces = view.namespaces().iter();
    let members = namespaces.filter(|it| it.ana_group == group && !groups_only);
    let mut end = at + DESCRIPTOR_BYTES;
    for namespace in members {
        window.put(end, U32::new(namespace.nsid).as_bytes());
        end += ID_BYTES;
    }
    let count = (end - at - DESCRIPTOR_BYTES) / ID_BYTES;
    let descriptor = AnaDescriptor {
        group: U32::new(group),
        namespaces: U32::new(u32::try_from(count).unwrap_or(u32::MAX)),
        change_count: U64::new(change_count),
        state: view.ana_state(group).code(),
        ..AnaDescriptor::new_zeroed()
    };
    window.put(at, descriptor.as_bytes());
    end
}

/// Length in bytes of the page of a controller with so many groups (NANAGRPID) and namespaces (NN),
/// at most. It saturates.
#[must_use]
pub fn ana_bytes_most(groups: u32, namespaces: u32) -> u64 {
    HEADER_BYTES + u64::from(groups) * DESCRIPTOR_BYTES + u64::from(namespaces) * ID_BYTES
}

/// The state of a namespace in a page, which may be cut at its end. None: the page names no such
/// namespace, or a state that the standard does not have.
#[must_use]
pub fn ana_state_of(page: &[u8], nsid: u32) -> Option<AnaState> {
    let (header, mut rest) = AnaHeader::read_from_prefix(page).ok()?;
    for _ in 0..header.groups.get() {
        let (descriptor, behind) = AnaDescriptor::read_from_prefix(rest).ok()?;
        let (ids, _) = behind.as_chunks::<4>();
        let count = usize::try_from(descriptor.namespaces.get()).unwrap_or(usize::MAX);
        let ids = &ids[..count.min(ids.len())];
        if ids.iter().any(|id| u32::from_le_bytes(*id) == nsid) {
            return AnaState::from_code(descriptor.state);
        }
        rest = &behind[ids.len() * 4..];
    }
    None
}

const HEADER_BYTES: u64 = size_of::<AnaHeader>() as u64;
const DESCRIPTOR_BYTES: u64 = size_of::<AnaDescriptor>() as u64;
/// Length of a namespace id in bytes.
const ID_BYTES: u64 = 4;
