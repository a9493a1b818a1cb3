//! Identify data and log pages of the fake target, which tests may change.

use fabrix_proto::nvme::identify::{
    CONTROLLER_TYPE_DISCOVERY, CONTROLLER_TYPE_IO, DLFEAT_READS_ZEROES, FUSES_COMPARE_AND_WRITE,
    IdentifyController, IdentifyNamespace, ONCS_COMPARE, ONCS_DATASET_MANAGEMENT,
    ONCS_WRITE_ZEROES, SGLS_SUPPORTED,
};
use fabrix_proto::nvme::nqn::Nqn;
use zerocopy::{FromZeros, IntoBytes};

/// The subsystem's name.
pub const NQN: &str = "nqn.2014-08.org.example:fake";
/// Blocks of 512 bytes.
pub const DISK_BLOCKS: u64 = 4096;

pub fn controller(controller_id: u16, discovery: bool) -> IdentifyController {
    let mut page = IdentifyController::new_zeroed();
    page.serial.copy_from_slice(b"FAKE0001            ");
    page.model[..4].copy_from_slice(b"fake");
    page.model[4..].fill(b' ');
    page.firmware.copy_from_slice(b"1       ");
    page.max_transfer = 8; // 1 MiB
    page.controller_id = controller_id.into();
    page.version = 0x0002_0000.into();
    page.controller_type = if discovery {
        CONTROLLER_TYPE_DISCOVERY
    } else {
        CONTROLLER_TYPE_IO
    };
    page.keep_alive_granularity = 1.into();
    page.submission_entry_sizes = 0x66;
    page.completion_entry_sizes = 0x44;
    page.namespaces = 1.into();
    page.nvm_commands = (ONCS_COMPARE | ONCS_DATASET_MANAGEMENT | ONCS_WRITE_ZEROES).into();
    page.fused_operations = FUSES_COMPARE_AND_WRITE.into();
    page.sgl_support = SGLS_SUPPORTED.into();
    let name = if discovery {
        Nqn::discovery()
    } else {
        Nqn::new(NQN).expect("an NQN")
    };
    page.subsystem_nqn = name.to_field();
    page.command_capsule_size = ((64 + 4096) / 16).into();
    page.response_capsule_size = 1.into();
    page
}

pub fn namespace() -> IdentifyNamespace {
    let mut page = IdentifyNamespace::new_zeroed();
    page.size = DISK_BLOCKS.into();
    page.capacity = DISK_BLOCKS.into();
    page.deallocation = DLFEAT_READS_ZEROES;
    page.lba_formats[0].data_shift = 9;
    page.nguid = [0xA5; 16];
    page
}

/// Namespace descriptors: UUID and command set.
pub fn put_descriptors(page: &mut [u8], uuid: [u8; 16]) {
    page[..4].copy_from_slice(&[3, 16, 0, 0]);
    page[4..20].copy_from_slice(&uuid);
    page[20..25].copy_from_slice(&[4, 1, 0, 0, 0]);
}

pub fn active_list(page: &mut [u8], above: u32) {
    if above == 0 {
        page[..4].copy_from_slice(1_u32.as_bytes());
    }
}
