//! The clients of this process: disks with the same access share one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use sys_rbd::{Access, Cluster, Error};

static CLIENTS: Mutex<Vec<(Access, Weak<Cluster>)>> = Mutex::new(Vec::new());

/// The client with this access. Connects if there is none, and waits for the cluster.
pub(crate) fn client(access: &Access) -> Result<Arc<Cluster>, Error> {
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|(_, client)| client.strong_count() > 0);
    let known = clients.iter().find(|(known, _)| known == access);
    if let Some(client) = known.and_then(|(_, client)| client.upgrade()) {
        return Ok(client);
    }
    let client = Cluster::connect(access)?;
    clients.push((access.clone(), Arc::downgrade(&client)));
    Ok(client)
}
