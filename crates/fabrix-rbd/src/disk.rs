//! An image as a disk.

use std::sync::Arc;

use fabrix_block::geometry::DEFAULT_BLOCK_BYTES;
use fabrix_block::spec::Common;
use fabrix_block::{
    Attributes, Channel, Deallocate, Device, Durability, Geometry, Identity, OpenError,
    OpenErrorKind, Ownership, Watching,
};
use fabrix_rt::{Shard, errno};
use sys_rbd::{Access, Error, Facts, Image, Name};

use crate::lock::Lock;
use crate::{channel, clusters};

/// An image of Ceph as a disk.
pub struct RbdDisk {
    opening: Arc<Opening>,
    image: Arc<Image>,
    metadata: Arc<Metadata>,
    lock: Arc<Lock>,
    /// The image has the feature exclusive-lock, and may be written.
    can_be_owned: bool,
    geometry: Geometry,
    identity: Identity,
}

/// How an image is opened.
struct Opening {
    /// Names the disk in sentences.
    text: String,
    access: Access,
    name: Name,
    common: Common,
}

/// Opens an image. Waits for the cluster. `text` names the disk in sentences.
///
/// # Errors
/// There is no library, cluster, pool, image or key, or the options do not fit the image.
pub fn open(
    text: &str,
    access: &Access,
    name: &Name,
    common: &Common,
) -> Result<RbdDisk, OpenError> {
    open_as(Arc::new(Opening {
        text: text.to_owned(),
        access: access.clone(),
        name: name.clone(),
        common: common.clone(),
    }))
}

fn open_as(opening: Arc<Opening>) -> Result<RbdDisk, OpenError> {
    let Opening {
        text,
        access,
        name,
        common,
    } = &*opening;
    let failed = |error: Error| refused(text, access, &error);
    let cluster = clusters::client(access).map_err(failed)?;
    let image = Image::open(&cluster, name, common.read_only).map_err(failed)?;
    let facts = image.facts().map_err(failed)?;
    let geometry = geometry(&facts, name, common)
        .map_err(|why| OpenError::new(OpenErrorKind::Usage, format!("{text}: {why}")))?;
    let is_writable = !common.read_only && name.snapshot.is_none();
    let can_be_owned = is_writable && image.can_be_locked().map_err(failed)?;
    Ok(RbdDisk {
        can_be_owned,
        identity: identity(text, &image, &facts, common),
        metadata: Arc::new(Metadata(Arc::clone(&image))),
        lock: Lock::new(&image),
        image,
        geometry,
        opening,
    })
}

/// What the disk promises. An ended write is on the replicas, because librbd's cache is off.
fn geometry(facts: &Facts, name: &Name, common: &Common) -> Result<Geometry, String> {
    let block_bytes = common.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES);
    let blocks = facts.bytes / u64::from(block_bytes);
    if blocks == 0 {
        let bytes = facts.bytes;
        return Err(format!(
            "the image has {bytes} bytes, less than one block of {block_bytes}"
        ));
    }
    let geometry = Geometry::new(block_bytes, blocks).with_physical(common.physical_block_bytes)?;
    let (unit, count) = facts.stripe;
    let together = match count {
        0 | 1 => facts.object_bytes,
        count => unit.saturating_mul(count),
    };
    Ok(Geometry {
        optimal_io_bytes: u32::try_from(together).unwrap_or(0),
        durability: Durability::Device,
        volatile_cache: false,
        read_only: name.snapshot.is_some(),
        // A range below the granularity of the cluster keeps its data.
        deallocate: Deallocate::Undefined,
        ..geometry
    })
}

/// Names that every gateway to the image derives alike: from the cluster, and the image's own
/// identifier, which outlives its name.
fn identity(text: &str, image: &Image, facts: &Facts, common: &Common) -> Identity {
    let name = common.name.as_deref().unwrap_or(text);
    let seed = format!(
        "rbd/{}/{}",
        image.cluster().fsid(),
        place(image.name(), &facts.id)
    );
    Identity::derive(name, &seed, "Ceph RBD image")
}

/// Place of an image in its cluster.
fn place(name: &Name, id: &str) -> String {
    let namespace = name.namespace.as_deref().unwrap_or_default();
    let snapshot = name.snapshot.as_deref().unwrap_or_default();
    format!("{}/{namespace}/{id}@{snapshot}", name.pool)
}

/// The sentence for an error, with what to do.
fn refused(text: &str, access: &Access, error: &Error) -> OpenError {
    let user = access.user.as_deref().unwrap_or("admin");
    let advice = match error.errno() {
        None => String::new(),
        Some(errno::EACCES | errno::EPERM) => {
            format!("; `ceph auth get client.{user}` shows what that user may do")
        }
        Some(errno::ETIMEDOUT) => "; are the monitors of `mon_host` running?".to_owned(),
        Some(_) => String::new(),
    };
    let kind = match error.errno() {
        None => OpenErrorKind::Unsupported,
        Some(errno::ENOENT) => OpenErrorKind::NotFound,
        Some(errno::EACCES | errno::EPERM) => OpenErrorKind::Authentication,
        Some(errno::EROFS | errno::EBUSY) => OpenErrorKind::InUse,
        Some(_) => OpenErrorKind::Unreachable,
    };
    OpenError::new(kind, format!("{text}: {error}{advice}"))
}

/// The metadata of an image.
struct Metadata(Arc<Image>);

impl Attributes for Metadata {
    fn read(&self, key: &str) -> Result<Option<String>, String> {
        self.0.metadata(key).map_err(|error| error.to_string())
    }

    fn write(&self, key: &str, text: &str) -> Result<(), String> {
        let stored = self.0.set_metadata(key, text);
        stored.map_err(|error| error.to_string())
    }
}

impl Device for RbdDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let opened = channel::open(shard, &self.image, &self.lock, self.geometry.clone());
        opened.map_err(|error| {
            let sentence = format!("{}: {error}", self.identity.name);
            OpenError::new(OpenErrorKind::NoMemory, sentence)
        })
    }

    fn attributes(&self) -> Option<Arc<dyn Attributes>> {
        Some(Arc::clone(&self.metadata) as Arc<dyn Attributes>)
    }

    fn ownership(&self) -> Option<Arc<dyn Ownership>> {
        let lock = self.can_be_owned.then(|| Arc::clone(&self.lock));
        lock.map(|lock| lock as Arc<dyn Ownership>)
    }

    fn watch(&self, changed: Box<dyn Fn() + Send + Sync>) -> Option<Watching> {
        self.image.watch(changed).ok().map(Watching::new)
    }

    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        if self.lock.is_lost() {
            clusters::forget(self.image.cluster());
            let opened = open_as(Arc::clone(&self.opening))?;
            return opened.resize_open(bytes);
        }
        self.resize_open(bytes)
    }
}

impl RbdDisk {
    /// The same image in another size, or in the present one.
    fn resize_open(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let name = &self.identity.name;
        let failed = |error: Error| {
            self.lock.note_error(&error);
            OpenError::new(OpenErrorKind::Unreachable, format!("{name}: {error}"))
        };
        if let Some(bytes) = bytes {
            self.image.resize(bytes).map_err(failed)?;
        }
        let facts = self.image.facts().map_err(failed)?;
        let blocks = facts.bytes / u64::from(self.geometry.block_bytes);
        Ok(Arc::new(Self {
            opening: Arc::clone(&self.opening),
            image: Arc::clone(&self.image),
            metadata: Arc::clone(&self.metadata),
            lock: Arc::clone(&self.lock),
            can_be_owned: self.can_be_owned,
            geometry: Geometry {
                blocks,
                ..self.geometry.clone()
            },
            identity: self.identity.clone(),
        }))
    }
}
