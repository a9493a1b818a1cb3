//! The catalog of `serve`: one NVMe subsystem, and one iSCSI target with the same disks.

use fabrix_block::Identity;
use fabrix_target::{
    Catalog, Export, Gateways, Initiators, IscsiTargetConfig, Listen, SubsystemConfig,
};

/// Builds a catalog of disks by namespace id. With `grows`, disks may be added later.
pub(crate) fn catalog(
    (nqn, iqn): (&str, &str),
    grows: bool,
    disks: Vec<Export>,
    (hosts, initiators): (Option<Vec<String>>, Initiators),
    (listen, gateways): (Vec<Listen>, Gateways),
) -> Catalog {
    let model = "Fabrix".to_owned();
    let firmware: String = env!("CARGO_PKG_VERSION").chars().take(8).collect();
    let mut catalog = Catalog {
        subsystems: vec![SubsystemConfig {
            nqn: nqn.to_owned(),
            serial: Identity::derive("", nqn, "").serial,
            model: model.clone(),
            firmware: firmware.clone(),
            grows,
            hosts,
            namespaces: Vec::new(),
        }],
        iscsi_targets: vec![IscsiTargetConfig {
            name: iqn.to_owned(),
            port: 1,
            product: model,
            revision: firmware,
            initiators,
            units: Vec::new(),
        }],
        listen,
        ana_states: Vec::new(),
        gateways,
    };
    set_disks(&mut catalog, disks);
    catalog
}

/// The disks of a catalog by namespace id.
pub(super) fn disks(catalog: &Catalog) -> &[Export] {
    &catalog.subsystems[0].namespaces
}

/// Sets the disks of a catalog. Namespace 1 is logical unit 0.
pub(super) fn set_disks(catalog: &mut Catalog, disks: Vec<Export>) {
    let units = disks.iter().map(|export| Export {
        number: export.number - 1,
        ..export.clone()
    });
    catalog.iscsi_targets[0].units = units.collect();
    catalog.subsystems[0].namespaces = disks;
}
