//! Parses images of Ceph: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP],id=USER,conf=FILE,keyring=FILE`.

use super::options::{Options, unescape};
use crate::spec::{Disk, Rbd, Spec};

pub(super) fn rbd(body: &str, mut options: Options<'_>) -> Result<Spec, String> {
    let place = unescape(body)?;
    let parts: Vec<&str> = place.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (pool, None, image),
        [pool, namespace, image] => (pool, Some(namespace), image),
        _ => {
            return Err(
                "an image is written rbd:POOL/IMAGE or rbd:POOL/NAMESPACE/IMAGE".to_owned(),
            );
        }
    };
    let (image, snapshot) = match image.split_once('@') {
        Some((image, snapshot)) => (image, Some(snapshot)),
        None => (image, None),
    };
    let named = [Some(pool), namespace, Some(image), snapshot];
    if named
        .into_iter()
        .flatten()
        .any(|name| name.is_empty() || name.contains(['\0', '@']))
    {
        return Err("a name is missing in rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]".to_owned());
    }
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let disk = Disk::Rbd(Rbd {
        pool: pool.to_owned(),
        namespace: owned(namespace),
        image: image.to_owned(),
        snapshot: owned(snapshot),
        user: options.take("id").transpose()?,
        conf: options.take("conf").transpose()?,
        keyring: options.take("keyring").transpose()?,
    });
    let common = options.common(true)?;
    Ok(Spec { disk, common })
}
