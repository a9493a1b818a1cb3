//! The structures of libibverbs and librdmacm that this crate reads or fills.
//!
//! Structures that the libraries allocate are declared up to the last field that is read, and
//! always before their first mutex, whose size differs between processors. They are used by pointer
//! only. Structures that this crate allocates are declared whole.
//!
//! Source: `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44 to 65.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A library function that this crate does not call.
type Unused = Option<unsafe extern "C" fn()>;

/// `struct ibv_context`, up to the number of completion vectors.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut VerbsDevice,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
}

/// `struct ibv_context_ops`: the functions behind the inline functions of the header.
#[repr(C)]
pub(crate) struct ContextOps {
    before_alloc_mw: [Unused; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    bind_mw: Unused,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    before_poll_cq: Unused,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    before_post_send: [Unused; 12],
    pub(crate) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    after_post_recv: [Unused; 5],
}

/// `struct ibv_device`, up to its name.
#[repr(C)]
pub(crate) struct VerbsDevice {
    before_node_type: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
}

/// `struct ibv_device_attr`.
#[repr(C)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) guids: [u64; 2],
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    rest: [u32; 18],
}

/// `struct ibv_pd`, up to its context.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) context: *mut Context,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_mw`, up to its key.
#[repr(C)]
pub(crate) struct Mw {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Pd,
    pub(crate) rkey: u32,
}

/// `struct ibv_comp_channel`, up to its descriptor.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
}

/// `struct ibv_cq`, up to its number of entries.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
    pub(crate) channel: *mut CompChannel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
}

/// `struct ibv_qp`, up to its number.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut Pd,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
}

/// `struct ibv_sge`: a range of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    pub(crate) invalidate_rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) before_bind: [u64; 3],
    pub(crate) bind: BindMw,
}

/// `bind_mw` of `struct ibv_send_wr`: a window, its next key, and the range that it opens.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindMw {
    pub(crate) mw: *mut Mw,
    pub(crate) rkey: u32,
    pub(crate) mr: *mut Mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: c_int,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`: a completion.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) invalidated_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_attr`, of which only the state is set.
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: c_int,
    rest: [u32; 35],
}

/// `struct ibv_async_event`.
#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) element: *mut c_void,
    pub(crate) event_type: c_int,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) fd: c_int,
}

/// `struct rdma_cm_id`, up to its addresses.
#[repr(C)]
pub(crate) struct CmId {
    pub(crate) verbs: *mut Context,
    pub(crate) channel: *mut EventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut Qp,
    pub(crate) src_addr: libc::sockaddr_storage,
    pub(crate) dst_addr: libc::sockaddr_storage,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConnParam {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// `struct rdma_cm_event`, up to the parameters of a connection.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) listen_id: *mut CmId,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: ConnParam,
}

impl SendWr {
    pub(crate) const fn empty() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            invalidate_rkey: 0,
            remote_addr: 0,
            rkey: 0,
            before_bind: [0; 3],
            bind: BindMw::empty(),
        }
    }
}

impl BindMw {
    pub(crate) const fn empty() -> Self {
        Self {
            mw: std::ptr::null_mut(),
            rkey: 0,
            mr: std::ptr::null_mut(),
            addr: 0,
            length: 0,
            access: 0,
        }
    }
}

impl RecvWr {
    pub(crate) const fn empty() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
        }
    }
}

impl QpAttr {
    pub(crate) const fn of_state(state: c_int) -> Self {
        Self {
            qp_state: state,
            rest: [0; 35],
        }
    }
}

pub(crate) const WR_RDMA_WRITE: c_int = 0;
pub(crate) const WR_SEND: c_int = 2;
pub(crate) const WR_RDMA_READ: c_int = 4;
pub(crate) const WR_LOCAL_INV: c_int = 7;
pub(crate) const WR_BIND_MW: c_int = 8;
pub(crate) const WR_SEND_WITH_INV: c_int = 9;

pub(crate) const SEND_SIGNALED: c_uint = 2;
pub(crate) const SEND_INLINE: c_uint = 8;

pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(crate) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(crate) const ACCESS_REMOTE_READ: c_int = 4;
pub(crate) const ACCESS_MW_BIND: c_int = 0x10;

pub(crate) const WC_SUCCESS: c_int = 0;
pub(crate) const WC_FLUSHED: c_int = 5;
pub(crate) const WC_WITH_INV: c_uint = 8;
/// The kernel's number for the same (`IB_WC_WITH_INVALIDATE`), which soft-RoCE hands out as it is.
pub(crate) const WC_WITH_INV_OF_KERNEL: c_uint = 4;
/// Vendor id of soft-RoCE.
pub(crate) const VENDOR_SOFT_ROCE: u32 = 0xFF_FFFF;

pub(crate) const QPT_RC: c_int = 2;
pub(crate) const QPS_ERR: c_int = 6;
pub(crate) const QP_STATE: c_int = 1;

pub(crate) const CONNECT_REQUEST: c_int = 4;
pub(crate) const DEVICE_REMOVAL: c_int = 11;
pub(crate) const PS_TCP: c_int = 0x106;
pub(crate) const OPTION_ID: c_int = 0;
pub(crate) const OPTION_ID_AFONLY: c_int = 2;
pub(crate) const DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub(crate) const DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
pub(crate) const MW_TYPE_2: c_int = 2;
pub(crate) const TRANSPORT_IWARP: c_int = 1;

const _: () = assert!(size_of::<SendWr>() == 128 && size_of::<RecvWr>() == 32);
const _: () = assert!(size_of::<Sge>() == 16 && size_of::<Wc>() == 48);
const _: () = assert!(size_of::<QpInitAttr>() == 64 && size_of::<QpAttr>() == 144);
const _: () = assert!(size_of::<DeviceAttr>() == 232 && size_of::<Mr>() == 48);
const _: () = assert!(size_of::<ConnParam>() == 24 && size_of::<AsyncEvent>() == 16);

/// The constants by their names in the headers.
#[cfg(test)]
pub(super) const CONSTANTS: [(&str, usize); 27] = [
    ("IBV_WR_RDMA_WRITE", WR_RDMA_WRITE as usize),
    ("IBV_WR_SEND", WR_SEND as usize),
    ("IBV_WR_RDMA_READ", WR_RDMA_READ as usize),
    ("IBV_WR_LOCAL_INV", WR_LOCAL_INV as usize),
    ("IBV_WR_BIND_MW", WR_BIND_MW as usize),
    ("IBV_WR_SEND_WITH_INV", WR_SEND_WITH_INV as usize),
    ("IBV_SEND_SIGNALED", SEND_SIGNALED as usize),
    ("IBV_SEND_INLINE", SEND_INLINE as usize),
    ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE as usize),
    ("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE as usize),
    ("IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ as usize),
    ("IBV_ACCESS_MW_BIND", ACCESS_MW_BIND as usize),
    ("IBV_WC_SUCCESS", WC_SUCCESS as usize),
    ("IBV_WC_WR_FLUSH_ERR", WC_FLUSHED as usize),
    ("IBV_WC_WITH_INV", WC_WITH_INV as usize),
    ("IBV_QPT_RC", QPT_RC as usize),
    ("IBV_QPS_ERR", QPS_ERR as usize),
    ("IBV_QP_STATE", QP_STATE as usize),
    ("RDMA_PS_TCP", PS_TCP as usize),
    ("RDMA_OPTION_ID", OPTION_ID as usize),
    ("RDMA_OPTION_ID_AFONLY", OPTION_ID_AFONLY as usize),
    (
        "IBV_DEVICE_MEM_MGT_EXTENSIONS",
        DEVICE_MEM_MGT_EXTENSIONS as usize,
    ),
    (
        "IBV_DEVICE_MEM_WINDOW_TYPE_2B",
        DEVICE_MEM_WINDOW_TYPE_2B as usize,
    ),
    ("IBV_MW_TYPE_2", MW_TYPE_2 as usize),
    ("IBV_TRANSPORT_IWARP", TRANSPORT_IWARP as usize),
    ("RDMA_CM_EVENT_CONNECT_REQUEST", CONNECT_REQUEST as usize),
    ("RDMA_CM_EVENT_DEVICE_REMOVAL", DEVICE_REMOVAL as usize),
];
