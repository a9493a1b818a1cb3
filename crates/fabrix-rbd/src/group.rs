//! What the gateways of a group store in the cluster: a state that all of them change in turn, and
//! a beat of each. They are objects of the pool in which the first image lies.
//!
//! A client of its own reads and writes them. Its requests fail after some seconds without an
//! answer, and it is not shut out with the client of the disks.

use std::sync::Arc;

use fabrix_block::{OpenError, OpenErrorKind};
use sys_rbd::{Access, Cluster, Error, Name, Objects};

use crate::clusters;

/// The stored things of one group.
pub struct GroupStore {
    access: Access,
    cluster: Arc<Cluster>,
    objects: Objects,
    object: String,
}

impl GroupStore {
    /// The things of the group of this name, in the pool of an image.
    ///
    /// # Errors
    /// The cluster does not answer, or does not let this user shut other clients out.
    pub fn open(access: &Access, image: &Name, group: &str) -> Result<Self, OpenError> {
        let failed = |error: Error| OpenError::new(OpenErrorKind::Unreachable, error.to_string());
        let cluster = Cluster::connect_impatient(access).map_err(failed)?;
        cluster.may_shut_out().map_err(|error| {
            let user = access.user.as_deref().unwrap_or("admin");
            let sentence = format!(
                "{error}; a gateway has to: ceph auth caps client.{user} mon 'profile rbd' osd 'profile rbd pool={}'",
                image.pool
            );
            OpenError::new(OpenErrorKind::Authentication, sentence)
        })?;
        let objects = Objects::beside(&cluster, image).map_err(failed)?;
        Ok(Self {
            access: access.clone(),
            cluster,
            objects,
            object: format!("fabrix.gateways.{group}"),
        })
    }

    /// The state and its version. None: there is none yet.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub fn state(&self) -> Result<Option<(u64, String)>, Error> {
        let read = self.objects.read(&self.object)?;
        Ok(read.map(|(bytes, version)| (version, String::from_utf8_lossy(&bytes).into_owned())))
    }

    /// Replaces the state of this version. False: it has another version.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer. The state may be replaced nevertheless.
    pub fn replace(&self, version: Option<u64>, text: &str) -> Result<bool, Error> {
        self.objects.replace(&self.object, version, text.as_bytes())
    }

    /// Stores the beat of a gateway.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub fn beat(&self, number: u16, beat: &str) -> Result<(), Error> {
        self.objects
            .write(&self.beat_object(number), beat.as_bytes())
    }

    /// The beat of a gateway. None: it has never had one.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub fn beat_of(&self, number: u16) -> Result<Option<String>, Error> {
        let read = self.objects.read(&self.beat_object(number))?;
        Ok(read.map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Shuts a client out, and waits until the clients of this process know it.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub fn shut_out(&self, client: &str) -> Result<(), Error> {
        self.cluster.shut_out(client)?;
        self.await_newest_map()
    }

    /// Waits until the client of the disks has the newest map of the cluster. Then no request of a
    /// client that was shut out before, by whomever, can follow one of this process.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub fn await_newest_map(&self) -> Result<(), Error> {
        clusters::client(&self.access)?.await_newest_map()
    }

    /// Address of the present client of the disks.
    ///
    /// # Errors
    /// There is none, and the cluster does not answer.
    pub fn client(&self) -> Result<String, Error> {
        clusters::client(&self.access)?.address()
    }

    fn beat_object(&self, number: u16) -> String {
        format!("{}/{number}", self.object)
    }
}
