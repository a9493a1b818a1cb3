//! libibverbs and librdmacm, opened at run time.
//!
//! The program links neither of them, so it starts on machines without RDMA. Both libraries stay
//! open until the process ends.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use sys_library::{Library, functions_of_library};

use super::layout::{
    AsyncEvent, CmEvent, CmId, CompChannel, ConnParam, Context, Cq, DeviceAttr, EventChannel, Mr,
    Pd, Qp, QpAttr, QpInitAttr,
};

functions_of_library! {
    /// Functions of libibverbs. The signatures are those of rdma-core's headers, which the
    /// libraries have kept since version 44.
    Verbs {
        fn ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
        fn ibv_alloc_pd(*mut Context) -> *mut Pd;
        fn ibv_dealloc_pd(*mut Pd) -> c_int;
        fn ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        fn ibv_dereg_mr(*mut Mr) -> c_int;
        fn ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
        fn ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
        fn ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        fn ibv_destroy_cq(*mut Cq) -> c_int;
        fn ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        fn ibv_ack_cq_events(*mut Cq, u32);
        fn ibv_modify_qp(*mut Qp, *mut QpAttr, c_int) -> c_int;
        fn ibv_destroy_qp(*mut Qp) -> c_int;
        fn ibv_get_async_event(*mut Context, *mut AsyncEvent) -> c_int;
        fn ibv_ack_async_event(*mut AsyncEvent);
        fn ibv_event_type_str(c_int) -> *const c_char;
        fn ibv_wc_status_str(c_int) -> *const c_char;
    }
}

functions_of_library! {
    /// Functions of librdmacm, likewise.
    ConnectionManager {
        fn rdma_create_event_channel() -> *mut EventChannel;
        fn rdma_destroy_event_channel(*mut EventChannel);
        fn rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        fn rdma_destroy_id(*mut CmId) -> c_int;
        fn rdma_bind_addr(*mut CmId, *mut libc::sockaddr) -> c_int;
        fn rdma_listen(*mut CmId, c_int) -> c_int;
        fn rdma_resolve_addr(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        fn rdma_resolve_route(*mut CmId, c_int) -> c_int;
        fn rdma_create_qp(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        fn rdma_connect(*mut CmId, *mut ConnParam) -> c_int;
        fn rdma_accept(*mut CmId, *mut ConnParam) -> c_int;
        fn rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
        fn rdma_disconnect(*mut CmId) -> c_int;
        fn rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
        fn rdma_set_option(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
        fn rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        fn rdma_ack_cm_event(*mut CmEvent) -> c_int;
    }
}

/// Both libraries.
pub(crate) struct Libraries {
    pub(crate) verbs: Verbs,
    pub(crate) cm: ConnectionManager,
}

/// The libraries of this process. The first call opens them, and every later call has the same
/// answer. The error is what the dynamic linker says.
pub(crate) fn libraries() -> Result<&'static Libraries, &'static str> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let opened = LIBRARIES.get_or_init(|| {
        // SAFETY: the initialisers of the two libraries only fill tables of their own.
        // WHY UNSAFE: loading a library runs its code.
        let (verbs, cm) = unsafe {
            (
                Library::open(c"libibverbs.so.1")?,
                Library::open(c"librdmacm.so.1")?,
            )
        };
        Ok(Libraries {
            verbs: Verbs::find(&verbs)?,
            cm: ConnectionManager::find(&cm)?,
        })
    });
    opened.as_ref().map_err(String::as_str)
}

/// The text of a constant string of a library.
///
/// # Safety
/// `text` is null or a C string that stays.
pub(crate) unsafe fn constant(text: *const c_char) -> &'static str {
    if text.is_null() {
        return "unknown";
    }
    // SAFETY: the caller vouches for the string.
    // WHY UNSAFE: a raw C string.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_there_have_every_function() {
        match libraries() {
            Ok(_) => {}
            Err(said) if said.contains("cannot open shared object file") => {
                println!("SKIPPED: functions of libibverbs and librdmacm: {said}");
            }
            Err(said) => panic!("{said}"),
        }
    }
}
