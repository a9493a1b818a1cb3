//! The paths of a disk, which join and leave while the disk is open. All shards read them, and the
//! pools on them are told of each change.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_block::Geometry;

use super::same::{common_geometry, kept_promises, same_disk};
use super::{MOST_PATHS, PathDisk, PathSwitches};
use crate::{ConnectError, ConnectErrorKind};

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLocation {
    /// Scheme of the path's URI.
    pub scheme: &'static str,
    /// Address of the target.
    pub address: SocketAddr,
    /// Own address that connections are bound to. None: the system chooses.
    pub from: Option<IpAddr>,
    /// Name of the subsystem or target.
    pub target: String,
    /// Namespace id or logical unit number.
    pub unit: u32,
}

/// A path of a disk.
#[derive(Clone)]
pub struct Member {
    /// Number of the path. It does not change while the path is a member.
    pub number: usize,
    /// Number among all paths that have ever joined the disk. A path that leaves and comes back has
    /// another one.
    pub(super) join: u64,
    /// The disk over this path alone.
    pub disk: Arc<dyn PathDisk>,
}

/// The paths of a disk.
pub struct Roster {
    switches: PathSwitches,
    state: Mutex<State>,
}

struct State {
    /// In the order of their numbers. Never empty.
    members: Vec<Member>,
    /// What the disk's users have been told.
    promised: Geometry,
    /// Number of paths that have joined.
    joins: u64,
}

impl Roster {
    /// The paths that a disk has from the start, by their numbers.
    ///
    /// # Errors
    /// There are no paths or more than [`MOST_PATHS`], one stands there twice, or two of them are
    /// not the same disk.
    pub(super) fn new(paths: Vec<(usize, Arc<dyn PathDisk>)>) -> Result<Self, ConnectError> {
        is_number(paths.len())?;
        let mut members: Vec<Member> = Vec::with_capacity(paths.len());
        for (join, (number, disk)) in (0..).zip(paths) {
            is_another(&members, &*disk)?;
            if let Some(first) = members.first() {
                same_disk(&*first.disk, &*disk)?;
            }
            members.push(Member { number, join, disk });
        }
        members.sort_by_key(|member| member.number);
        let (joins, promised) = (members.len() as u64, common_geometry(&members));
        Ok(Self {
            switches: PathSwitches::default(),
            state: Mutex::new(State {
                members,
                promised,
                joins,
            }),
        })
    }

    /// What an administrator wants of the paths.
    #[must_use]
    pub fn switches(&self) -> &PathSwitches {
        &self.switches
    }

    /// The present paths in the order of their numbers.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.state().members.clone()
    }

    /// The number of the next path that joins: the lowest that is free.
    ///
    /// # Errors
    /// The disk has [`MOST_PATHS`] paths.
    pub fn free_number(&self) -> Result<usize, ConnectError> {
        let state = self.state();
        is_number(state.members.len() + 1)?;
        let is_taken = |number: &usize| state.members.iter().any(|it| it.number == *number);
        Ok((0..).find(|number| !is_taken(number)).unwrap_or(MOST_PATHS))
    }

    /// A path joins the disk. It gets requests on every shard that has the disk open.
    ///
    /// # Errors
    /// The number is taken, the path is one already, leads to another disk, or keeps less than the
    /// disk's users have been told.
    pub fn join(&self, number: usize, disk: Arc<dyn PathDisk>) -> Result<(), ConnectError> {
        let mut state = self.state();
        is_number(state.members.len() + 1)?;
        if number >= MOST_PATHS || state.members.iter().any(|it| it.number == number) {
            return Err(usage(format!("the number {number} is taken")));
        }
        is_another(&state.members, &*disk)?;
        if let Some(first) = state.members.first() {
            same_disk(&*first.disk, &*disk)?;
            kept_promises(&state.promised, &*first.disk, &*disk)?;
        }
        let join = state.joins;
        state.joins += 1;
        state.members.push(Member { number, join, disk });
        state.members.sort_by_key(|member| member.number);
        drop(state);
        self.switches.tell();
        Ok(())
    }

    /// A path leaves the disk. It gets no more requests. Its sessions end when those in progress
    /// have.
    ///
    /// # Errors
    /// There is no such path, or it is the last one.
    pub fn leave(&self, number: usize) -> Result<(), ConnectError> {
        let mut state = self.state();
        let index = state.members.iter().position(|it| it.number == number);
        let index = index.ok_or_else(|| usage(no_path(number, &state.members)))?;
        if state.members.len() == 1 {
            let sentence = format!("path {number} is the last one of the disk: detach the disk");
            return Err(usage(sentence));
        }
        state.members.remove(index);
        drop(state);
        self.switches.forget(number);
        self.switches.tell();
        Ok(())
    }

    /// Checks that there is a path of this number.
    ///
    /// # Errors
    /// There is none. The sentence has the numbers that there are.
    pub fn has(&self, number: usize) -> Result<(), ConnectError> {
        let members = &self.state().members;
        match members.iter().any(|member| member.number == number) {
            true => Ok(()),
            false => Err(usage(no_path(number, members))),
        }
    }

    /// The paths lead to the same disk with other properties.
    pub(super) fn remeasured(&self, measured: &[Member], promised: &Geometry) {
        let mut state = self.state();
        for member in &mut state.members {
            if let Some(found) = measured.iter().find(|it| it.join == member.join) {
                member.disk = Arc::clone(&found.disk);
            }
        }
        state.promised = promised.clone();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn usage(sentence: String) -> ConnectError {
    ConnectError::new(ConnectErrorKind::Usage, sentence)
}

/// Checks a number of paths.
///
/// # Errors
/// A disk cannot have so many.
pub(super) fn is_number(paths: usize) -> Result<(), ConnectError> {
    match paths {
        0 => Err(usage(
            "a disk over several paths needs at least one".to_owned(),
        )),
        1..=MOST_PATHS => Ok(()),
        more => Err(usage(format!(
            "{more} paths: a disk has at most {MOST_PATHS}"
        ))),
    }
}

/// Checks that a path is none of the others.
fn is_another(members: &[Member], disk: &dyn PathDisk) -> Result<(), ConnectError> {
    let location = disk.location();
    match members
        .iter()
        .find(|member| member.disk.location() == location)
    {
        None => Ok(()),
        Some(same) => Err(usage(format!(
            "{} leads to {}, where path {} leads already: they are the same path",
            disk.identity().name,
            location.address,
            same.number
        ))),
    }
}

fn no_path(number: usize, members: &[Member]) -> String {
    let numbers: Vec<String> = members.iter().map(|it| it.number.to_string()).collect();
    format!(
        "there is no path {number}: the disk has {}",
        numbers.join(", ")
    )
}
