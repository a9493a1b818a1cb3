//! Who may use which blocks at this moment, and what that means for requests in progress.
//!
//! While a change runs, what it grants and what it withdraws are both possible. When it has
//! answered, later requests see only the new state.

use std::collections::BTreeMap;

use super::site::Site;
use crate::hosts::Protocol;

/// A host and its disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) host: usize,
    pub(crate) protocol: Protocol,
    pub(crate) disk: usize,
}

/// The state of access.
pub(crate) struct Access {
    /// The sites that may be in force: one, or while a change runs two.
    sites: Vec<Site>,
    requests: BTreeMap<u64, Request>,
    next: u64,
}

struct Request {
    seat: Seat,
    /// The block behind the last one.
    end: u64,
    may_pass: bool,
    may_fail: bool,
}

impl Access {
    pub(crate) fn new(site: Site) -> Self {
        Self {
            sites: vec![site],
            requests: BTreeMap::new(),
            next: 0,
        }
    }

    /// A change to `site` begins.
    pub(crate) fn change_begins(&mut self, site: Site) {
        self.sites.push(site);
        self.note();
    }

    /// The change has ended. `is_made`: the new site is in force, and not the old one.
    pub(crate) fn change_ends(&mut self, is_made: bool) {
        let site = if is_made {
            self.sites.pop()
        } else {
            self.sites.drain(..).next()
        };
        self.sites = site.into_iter().collect();
    }

    /// The site that is in force, or will be.
    pub(crate) fn site(&self) -> &Site {
        self.sites.last().expect("there is one")
    }

    /// A request of a host begins, for blocks before `end`.
    pub(crate) fn begins(&mut self, seat: Seat, end: u64) -> u64 {
        self.next += 1;
        let request = Request {
            seat,
            end,
            may_pass: false,
            may_fail: false,
        };
        self.requests.insert(self.next, request);
        self.note();
        self.next
    }

    /// A request has ended.
    ///
    /// # Errors
    /// It must not have ended like this.
    pub(crate) fn ends(&mut self, id: u64, passed: bool) -> Result<(), String> {
        let request = self.requests.remove(&id).expect("it began");
        let (seat, end) = (request.seat, request.end);
        match passed {
            true if !request.may_pass => Err(format!(
                "a request of {seat:?} up to block {end} passed, with {:?}",
                self.sites
            )),
            false if !request.may_fail => Err(format!(
                "a request of {seat:?} up to block {end} failed, and nobody has withdrawn its disk"
            )),
            _ => Ok(()),
        }
    }

    /// The host closes its disk: its requests in progress may fail.
    pub(crate) fn is_closed(&mut self, seat: Seat) {
        let requests = self.requests.values_mut();
        for request in requests.filter(|it| it.seat.host == seat.host) {
            request.may_fail = true;
        }
    }

    fn note(&mut self) {
        for request in self.requests.values_mut() {
            let seat = request.seat;
            for site in &self.sites {
                let may = site.admits(seat.protocol, seat.host, seat.disk)
                    && request.end <= site.blocks[seat.disk];
                request.may_pass |= may;
                request.may_fail |= !may;
            }
        }
    }
}
