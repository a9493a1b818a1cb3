//! Making and destroying queue pairs, and what their ends tell each other.

use std::io;
use std::ptr::{self, NonNull};

use super::completions::CompletionQueue;
use super::id::Id;
use super::layout::{self, ConnParam, Qp, QpCap, QpInitAttr};
use super::memory::ShardMemory;
use super::queue_pair::QueueSizes;
use super::{check, check_errno};
use crate::event::Parameters;

/// Makes the queue pair of an id. Result: also bytes of a message that the device copies when it is
/// posted.
pub(super) fn create(
    id: &Id,
    completions: &CompletionQueue,
    memory: &ShardMemory,
    sizes: &QueueSizes,
) -> io::Result<(NonNull<Qp>, usize)> {
    // SAFETY: the id exists, and only this thread uses it.
    // WHY UNSAFE: a raw pointer.
    if unsafe { !(*id.raw()).qp.is_null() } {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let with_inline = |max_inline_data| {
        let mut attributes = QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: completions.raw(),
            recv_cq: completions.raw(),
            srq: ptr::null_mut(),
            cap: QpCap {
                max_send_wr: sizes.sends,
                max_recv_wr: sizes.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data,
            },
            qp_type: layout::QPT_RC,
            sq_sig_all: 0,
        };
        let create = id.libraries().cm.rdma_create_qp;
        // SAFETY: id, protection domain and completion queue exist and are of one device. The
        // library reads and writes one `struct ibv_qp_init_attr`.
        // WHY UNSAFE: a foreign function.
        check(unsafe { create(id.raw(), memory.device().domain(), &raw mut attributes) })?;
        Ok::<_, io::Error>(attributes.cap.max_inline_data as usize)
    };
    let inline_bytes = match with_inline(sizes.message_bytes.min(INLINE_MOST)) {
        // A device that copies less refuses the number.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => with_inline(0)?,
        made => made?,
    };
    // SAFETY: as above; the call has set the field.
    // WHY UNSAFE: as above.
    let raw = unsafe { (*id.raw()).qp };
    let raw = NonNull::new(raw).ok_or(io::ErrorKind::Other)?;
    Ok((raw, inline_bytes))
}

/// Destroys the queue pair of an id. rdma_destroy_qp does the same and hides whether it could.
pub(super) fn destroy(id: &Id, raw: NonNull<Qp>) -> io::Result<()> {
    // SAFETY: the queue pair exists, and its owner gives it up.
    // WHY UNSAFE: a foreign function, and the object ends here.
    check_errno(unsafe { (id.libraries().verbs.ibv_destroy_qp)(raw.as_ptr()) })?;
    // SAFETY: the id exists, and only this thread uses it.
    // WHY UNSAFE: a raw pointer.
    unsafe { (*id.raw()).qp = ptr::null_mut() };
    Ok(())
}

pub(super) fn conn_param(parameters: &Parameters) -> io::Result<ConnParam> {
    let bytes = u8::try_from(parameters.private_data.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok(ConnParam {
        private_data: parameters.private_data.as_ptr().cast(),
        private_data_len: bytes,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES_FOR_EVER,
        srq: 0,
        qp_num: 0,
    })
}

/// Transport retries before a peer counts as gone: the most that the field takes.
const RETRIES: u8 = 7;
/// A peer without a posted receive is asked again for ever.
const RETRIES_FOR_EVER: u8 = 7;
/// Bytes of a message that the device copies when it is posted: more than the longest answer.
const INLINE_MOST: u32 = 256;
