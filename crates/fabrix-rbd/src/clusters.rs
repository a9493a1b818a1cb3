//! The clients of this process: disks with the same access share one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sys_rbd::{Access, Cluster, Error};

/// Clients by their access.
type Clients = Vec<(Access, Weak<Cluster>)>;

static CLIENTS: Mutex<Clients> = Mutex::new(Vec::new());

/// The client with this access. Connects if there is none, and waits for the cluster.
pub(crate) fn client(access: &Access) -> Result<Arc<Cluster>, Error> {
    let mut clients = clients();
    clients.retain(|(_, client)| client.strong_count() > 0);
    let known = clients.iter().find(|(known, _)| known == access);
    if let Some(client) = known.and_then(|(_, client)| client.upgrade()) {
        return Ok(client);
    }
    let client = Cluster::connect(access)?;
    clients.push((access.clone(), Arc::downgrade(&client)));
    Ok(client)
}

/// Lets nobody else use a client that the cluster has shut out. The next user connects a new one.
pub(crate) fn forget(lost: &Arc<Cluster>) {
    let lost = Arc::downgrade(lost);
    clients().retain(|(_, client)| !client.ptr_eq(&lost));
}

fn clients() -> MutexGuard<'static, Clients> {
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}
