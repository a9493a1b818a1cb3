//! Opens images of Ceph.

use std::path::PathBuf;
use std::sync::Arc;

use fabrix_block::spec::Rbd;
use fabrix_block::{Device, Spec, apply_common_options};

use super::{Opener, opened};
use crate::failure::Failure;

impl Opener {
    /// Opens an image. Its identity is the same on every machine.
    pub(super) fn open_rbd(&self, spec: &Spec, rbd: &Rbd) -> Result<Arc<dyn Device>, Failure> {
        let text = spec.to_string();
        let disk = fabrix_rbd::open(&text, &access(rbd), &image(rbd), &spec.common);
        let disk: Arc<dyn Device> = Arc::new(disk.map_err(Failure::from)?);
        let names = opened::names(disk.identity());
        let disk = self.claimed(spec, disk, names)?;
        Ok(apply_common_options(disk, &spec.common))
    }
}

/// How the client of an image of Ceph proves who it is.
pub(crate) fn access(rbd: &Rbd) -> fabrix_rbd::Access {
    let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
    fabrix_rbd::Access {
        user: rbd.user.clone(),
        conf: path(&rbd.conf),
        keyring: path(&rbd.keyring),
    }
}

/// The names of an image of Ceph.
pub(crate) fn image(rbd: &Rbd) -> fabrix_rbd::Name {
    fabrix_rbd::Name {
        pool: rbd.pool.clone(),
        namespace: rbd.namespace.clone(),
        image: rbd.image.clone(),
        snapshot: rbd.snapshot.clone(),
    }
}
