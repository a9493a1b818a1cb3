//! Starts the first available front end of a list of candidates. Each attempt has its own shard,
//! because a failed one may leave state on its shard.
//!
//! `front` implements the front ends, and `choose` selects the candidates.

use std::sync::Arc;

use fabrix_attach::EventHandler;
use fabrix_block::Device;

use super::choose::Candidate;
use super::front::Front;
use super::kernel_fuse;
use super::records::{Claim, Record};
use crate::args::{AttachArgs, FrontEnd};
use crate::cli::terminal::say;
use crate::failure::{Failure, Kind};
use crate::shards::Shards;

/// A started front end.
pub(super) struct Begun {
    pub(super) kind: FrontEnd,
    pub(super) front: Front,
    /// The shard that serves it.
    pub(super) shards: Shards,
}

/// Starts the first available candidate, and prints why the better ones are not available.
/// `event_handler` creates the event handler of each front end.
///
/// # Errors
/// No candidate is available. The sentence has the reason for each.
pub(super) fn begin(
    candidates: Vec<Candidate>,
    claim: &Claim,
    (args, left): (&AttachArgs, Option<&Record>),
    disk: &Arc<dyn Device>,
    event_handler: impl Fn(FrontEnd) -> EventHandler,
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
        let (of, on_event) = ((&remote, disk), event_handler(kind));
        let front = Front::begin(kind, claim, (args, left), of, on_event);
        // For a takeover the sizes were compared before. Ending the device here would take it away
        // from its users.
        let front = front.and_then(|front| match left {
            None => front.checked(&**disk),
            Some(_) => Ok(front),
        });
        match front {
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
                refused.push(format!("{}: {failure}", kind.word()));
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
        FrontEnd::File => "a file".to_owned(),
        FrontEnd::NbdSocket => "an NBD socket".to_owned(),
        other => other.word(),
    };
    say(format_args!(
        "{}: attached as {shown}, because {}",
        claim.name,
        refused.join("; ")
    ));
}
