//! Address arithmetic of an array, without side effects. Chunk 0 is the first chunk of member 0,
//! chunk 1 the first of member 1, and so on in turn. All counts are in blocks.

/// Number of members and chunk size of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    members: u64,
    chunk_blocks: u64,
}

/// The part of a request that lies on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the member.
    pub member: usize,
    /// First block on the member.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Offset of the piece within the request, in blocks.
    pub start: u32,
}

impl Piece {
    /// A member's part of a flush, which has no blocks.
    pub(super) const fn of_flush(member: usize) -> Self {
        Self {
            member,
            lba: 0,
            blocks: 0,
            start: 0,
        }
    }
}

impl Layout {
    /// A layout of `members` disks with chunks of `chunk_blocks` blocks. Both are at least 1.
    #[must_use]
    pub fn new(members: usize, chunk_blocks: u32) -> Self {
        Self {
            members: members.max(1) as u64,
            chunk_blocks: u64::from(chunk_blocks.max(1)),
        }
    }

    /// Blocks in a chunk.
    #[must_use]
    pub const fn chunk_blocks(&self) -> u64 {
        self.chunk_blocks
    }

    /// Whether a request lies within one chunk, and so on one member.
    #[must_use]
    pub const fn in_one_chunk(&self, lba: u64, blocks: u32) -> bool {
        lba % self.chunk_blocks + blocks as u64 <= self.chunk_blocks
    }

    /// Cuts a request into pieces, in array order.
    ///
    /// The pieces cover the request exactly, never overlap, and none crosses a chunk.
    pub fn pieces(self, lba: u64, blocks: u32) -> impl Iterator<Item = Piece> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let piece = self.first(lba + u64::from(start), blocks - start, start)?;
            start += piece.blocks;
            Some(piece)
        })
    }

    /// Number of pieces of a request.
    #[must_use]
    pub fn count(&self, lba: u64, blocks: u32) -> usize {
        let chunks = (lba % self.chunk_blocks + u64::from(blocks)).div_ceil(self.chunk_blocks);
        usize::try_from(if blocks == 0 { 0 } else { chunks }).unwrap_or(usize::MAX)
    }

    /// The single range of a member that a request covers: consecutive chunks of a member are
    /// adjacent on it. None if the request does not touch the member. Used for operations without
    /// payload.
    #[must_use]
    pub fn extent(&self, member: usize, lba: u64, blocks: u32) -> Option<Piece> {
        let first = self.blocks_before(member, lba);
        let end = self.blocks_before(member, lba + u64::from(blocks));
        let blocks = u32::try_from(end - first).expect("no more than the request has");
        (blocks > 0).then_some(Piece {
            member,
            lba: first,
            blocks,
            start: 0,
        })
    }

    fn first(&self, lba: u64, blocks: u32, start: u32) -> Option<Piece> {
        let (chunk, within) = (lba / self.chunk_blocks, lba % self.chunk_blocks);
        let left = u32::try_from(self.chunk_blocks - within).unwrap_or(u32::MAX);
        let piece = Piece {
            member: usize::try_from(chunk % self.members).expect("there are that many members"),
            lba: chunk / self.members * self.chunk_blocks + within,
            blocks: blocks.min(left),
            start,
        };
        (blocks > 0).then_some(piece)
    }

    /// Number of a member's blocks that precede a block of the array.
    fn blocks_before(&self, member: usize, lba: u64) -> u64 {
        let stripe_blocks = self.chunk_blocks * self.members;
        let in_stripe = (lba % stripe_blocks).saturating_sub(member as u64 * self.chunk_blocks);
        lba / stripe_blocks * self.chunk_blocks + in_stripe.min(self.chunk_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunks_go_round_the_members() {
        let layout = Layout::new(3, 4);
        let pieces: Vec<_> = layout
            .pieces(2, 12)
            .map(|p| (p.member, p.lba, p.blocks, p.start))
            .collect();
        assert_eq!(
            pieces,
            [(0, 2, 2, 0), (1, 0, 4, 2), (2, 0, 4, 6), (0, 4, 2, 10)]
        );
        assert_eq!(
            layout.extent(0, 2, 12),
            Some(Piece {
                member: 0,
                lba: 2,
                blocks: 4,
                start: 0
            })
        );
        assert_eq!(layout.extent(1, 0, 4), None);
    }

    proptest! {
        #[test]
        fn pieces_cover_a_request_exactly_and_cross_no_chunk(
            members in 1usize..9, chunk in 1u32..70, lba in 0u64..10_000, blocks in 0u32..600
        ) {
            let layout = Layout::new(members, chunk);
            let pieces: Vec<Piece> = layout.pieces(lba, blocks).collect();
            prop_assert_eq!(pieces.len(), layout.count(lba, blocks));
            prop_assert_eq!(layout.in_one_chunk(lba, blocks), pieces.len() <= 1);
            let mut next = 0;
            for piece in &pieces {
                prop_assert_eq!(piece.start, next);
                prop_assert!(piece.blocks > 0 && piece.member < members);
                prop_assert!(piece.lba % u64::from(chunk) + u64::from(piece.blocks) <= u64::from(chunk));
                next += piece.blocks;
            }
            prop_assert_eq!(next, blocks);
        }

        #[test]
        fn no_two_blocks_of_an_array_share_a_place(
            members in 1usize..5, chunk in 1u32..9, blocks in 1u32..200
        ) {
            let layout = Layout::new(members, chunk);
            let mut places = std::collections::BTreeSet::new();
            for lba in 0..u64::from(blocks) {
                let piece = layout.pieces(lba, 1).next().expect("one block has one piece");
                prop_assert!(places.insert((piece.member, piece.lba)));
            }
        }

        #[test]
        fn the_extents_of_the_members_are_their_pieces_together(
            members in 1usize..6, chunk in 1u32..20, lba in 0u64..1000, blocks in 0u32..300
        ) {
            let layout = Layout::new(members, chunk);
            for member in 0..members {
                let pieces: Vec<_> = layout.pieces(lba, blocks).filter(|p| p.member == member).collect();
                let extent = layout.extent(member, lba, blocks);
                prop_assert_eq!(extent.map(|e| e.lba), pieces.first().map(|p| p.lba));
                let sum: u32 = pieces.iter().map(|p| p.blocks).sum();
                prop_assert_eq!(extent.map_or(0, |e| e.blocks), sum);
            }
        }
    }
}
