//! Begins the first front end that can be had. Each is tried on a shard of its own, because one
//! that fails may leave something on its shard.
//!
//! Knows that front ends fail; what they are is `front`, and which are tried `choose`.

use std::sync::Arc;

use fabrix_attach::Tell;
use fabrix_block::Device;

use super::choose::Candidate;
use super::front::Front;
use super::holder::word;
use super::kernel_fuse;
use super::records::{Claim, Record};
use crate::args::{AttachArgs, FrontEnd};
use crate::cli::terminal::say;
use crate::failure::{Failure, Kind};
use crate::shards::Shards;

/// A front end that has begun.
pub(super) struct Begun {
    pub(super) kind: FrontEnd,
    pub(super) front: Front,
    /// The loop that answers it.
    pub(super) shards: Shards,
}

/// Begins the first of the candidates that can be had, and says why it is not a better one.
/// `telling` gives each what hears its end.
///
/// # Errors
/// None of them can be had: why not, for each.
pub(super) fn begin(
    candidates: Vec<Candidate>,
    claim: &Claim,
    (args, left): (&AttachArgs, Option<&Record>),
    disk: &Arc<dyn Device>,
    telling: impl Fn(FrontEnd) -> Tell,
) -> Result<Begun, Failure> {
    let is_the_only_one = candidates.len() == 1;
    let mut refused = Vec::new();
    let mut last = Kind::Usage;
    for candidate in candidates {
        let kind = match candidate {
            Ok(kind) => kind,
            Err(why) => {
                refused.push(why);
                continue;
            }
        };
        let shards = Shards::one(&args.engine, kernel_fuse::asks_over_uring(kind))?;
        let remote = shards.remotes().remove(0);
        match Front::begin(kind, claim, (args, left), (&remote, disk), telling(kind)) {
            Ok(front) => {
                tell_why(claim, kind, &refused);
                return Ok(Begun {
                    kind,
                    front,
                    shards,
                });
            }
            Err(failure) => {
                shards.stop();
                if is_the_only_one {
                    return Err(failure);
                }
                last = failure.kind();
                refused.push(format!("{}: {failure}", word(kind)));
            }
        }
    }
    let all = refused.join("\n  ");
    let sentence = format!("{} cannot be attached in any way:\n  {all}", claim.name);
    Err(Failure::new(last, sentence))
}

fn tell_why(claim: &Claim, kind: FrontEnd, refused: &[String]) {
    if refused.is_empty() {
        return;
    }
    let shown = match kind {
        FrontEnd::File => "a file",
        FrontEnd::NbdSocket => "an NBD socket",
        other => word(other),
    };
    say(format_args!(
        "{}: attached as {shown}, because {}",
        claim.name,
        refused.join("; ")
    ));
}
