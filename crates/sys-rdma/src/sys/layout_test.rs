//! Our structures against the headers of rdma-core, as a C compiler lays them out.

use std::mem::offset_of;
use std::process::Command;

use super::layout::{
    AsyncEvent, BindMw, CmEvent, CmId, CompChannel, ConnParam, Context, ContextOps, Cq, DeviceAttr,
    EventChannel, Mr, Mw, Pd, Qp, QpAttr, QpCap, QpInitAttr, RecvWr, SendWr, Sge, VerbsDevice, Wc,
};

/// Fields: ours, and C's name of each.
macro_rules! fields {
    ($($ours:ty = $theirs:literal { $($field:ident = $name:literal),* $(,)? })*) => {
        vec![$($((concat!("offsetof(", $theirs, ", ", $name, ")"), offset_of!($ours, $field)),)*)*]
    };
}

/// Structures that this crate makes, so their sizes count too.
macro_rules! sizes {
    ($($ours:ty = $theirs:literal),* $(,)?) => {
        vec![$((concat!("sizeof(", $theirs, ")"), size_of::<$ours>()),)*]
    };
}

fn expressions() -> Vec<(&'static str, usize)> {
    let mut all = fields! {
        Context = "struct ibv_context" {
            device = "device", ops = "ops", cmd_fd = "cmd_fd", async_fd = "async_fd",
            num_comp_vectors = "num_comp_vectors",
        }
        ContextOps = "struct ibv_context_ops" {
            alloc_mw = "alloc_mw", dealloc_mw = "dealloc_mw", poll_cq = "poll_cq",
            req_notify_cq = "req_notify_cq", post_send = "post_send", post_recv = "post_recv",
        }
        VerbsDevice = "struct ibv_device" {
            node_type = "node_type", transport_type = "transport_type", name = "name",
        }
        DeviceAttr = "struct ibv_device_attr" {
            guids = "node_guid", max_mr_size = "max_mr_size", vendor_id = "vendor_id",
            max_qp_wr = "max_qp_wr", device_cap_flags = "device_cap_flags", max_sge = "max_sge",
            max_sge_rd = "max_sge_rd", max_cqe = "max_cqe", max_qp_rd_atom = "max_qp_rd_atom",
            max_qp_init_rd_atom = "max_qp_init_rd_atom",
        }
        Pd = "struct ibv_pd" { context = "context" }
        Mr = "struct ibv_mr" { addr = "addr", length = "length", lkey = "lkey", rkey = "rkey" }
        Mw = "struct ibv_mw" { context = "context", pd = "pd", rkey = "rkey" }
        CompChannel = "struct ibv_comp_channel" { context = "context", fd = "fd" }
        Cq = "struct ibv_cq" { channel = "channel", cq_context = "cq_context", cqe = "cqe" }
        Qp = "struct ibv_qp" { pd = "pd", send_cq = "send_cq", srq = "srq", qp_num = "qp_num" }
        Sge = "struct ibv_sge" { addr = "addr", length = "length", lkey = "lkey" }
        SendWr = "struct ibv_send_wr" {
            wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge",
            opcode = "opcode", send_flags = "send_flags", invalidate_rkey = "invalidate_rkey",
            remote_addr = "wr.rdma.remote_addr", rkey = "wr.rdma.rkey", bind = "bind_mw",
        }
        RecvWr = "struct ibv_recv_wr" {
            wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge",
        }
        Wc = "struct ibv_wc" {
            wr_id = "wr_id", status = "status", opcode = "opcode", byte_len = "byte_len",
            invalidated_rkey = "invalidated_rkey", qp_num = "qp_num", wc_flags = "wc_flags",
        }
        QpInitAttr = "struct ibv_qp_init_attr" {
            qp_context = "qp_context", send_cq = "send_cq", recv_cq = "recv_cq", srq = "srq",
            cap = "cap", qp_type = "qp_type", sq_sig_all = "sq_sig_all",
        }
        QpCap = "struct ibv_qp_cap" {
            max_send_wr = "max_send_wr", max_recv_wr = "max_recv_wr",
            max_send_sge = "max_send_sge", max_recv_sge = "max_recv_sge",
            max_inline_data = "max_inline_data",
        }
        QpAttr = "struct ibv_qp_attr" { qp_state = "qp_state" }
        AsyncEvent = "struct ibv_async_event" { element = "element", event_type = "event_type" }
        EventChannel = "struct rdma_event_channel" { fd = "fd" }
        CmId = "struct rdma_cm_id" {
            verbs = "verbs", channel = "channel", context = "context", qp = "qp",
            src_addr = "route.addr.src_addr", dst_addr = "route.addr.dst_addr",
        }
        ConnParam = "struct rdma_conn_param" {
            private_data = "private_data", private_data_len = "private_data_len",
            responder_resources = "responder_resources", initiator_depth = "initiator_depth",
            flow_control = "flow_control", retry_count = "retry_count",
            rnr_retry_count = "rnr_retry_count", srq = "srq", qp_num = "qp_num",
        }
        CmEvent = "struct rdma_cm_event" {
            id = "id", listen_id = "listen_id", event = "event", status = "status",
            conn = "param.conn",
        }
    };
    let bind = offset_of!(SendWr, bind);
    all.extend([
        (
            "offsetof(struct ibv_send_wr, bind_mw.mw)",
            bind + offset_of!(BindMw, mw),
        ),
        (
            "offsetof(struct ibv_send_wr, bind_mw.rkey)",
            bind + offset_of!(BindMw, rkey),
        ),
        (
            "offsetof(struct ibv_send_wr, bind_mw.bind_info.mr)",
            bind + offset_of!(BindMw, mr),
        ),
        (
            "offsetof(struct ibv_send_wr, bind_mw.bind_info.addr)",
            bind + offset_of!(BindMw, addr),
        ),
        (
            "offsetof(struct ibv_send_wr, bind_mw.bind_info.length)",
            bind + offset_of!(BindMw, length),
        ),
        (
            "offsetof(struct ibv_send_wr, bind_mw.bind_info.mw_access_flags)",
            bind + offset_of!(BindMw, access),
        ),
    ]);
    all.extend(sizes! {
        SendWr = "struct ibv_send_wr", RecvWr = "struct ibv_recv_wr", Sge = "struct ibv_sge",
        Wc = "struct ibv_wc", QpInitAttr = "struct ibv_qp_init_attr",
        QpAttr = "struct ibv_qp_attr", DeviceAttr = "struct ibv_device_attr",
        ConnParam = "struct rdma_conn_param", AsyncEvent = "struct ibv_async_event",
        ContextOps = "struct ibv_context_ops",
    });
    let constants = super::layout::CONSTANTS.iter();
    all.extend(constants.map(|(name, value)| (*name, *value)));
    all
}

#[test]
fn structures_and_constants_are_those_of_the_headers() {
    let name = "structures of rdma-core";
    if !std::path::Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return println!("SKIPPED: {name}: no headers; install libibverbs-dev and librdmacm-dev");
    }
    let expressions = expressions();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let lines = expressions.iter();
    let lines: String = lines
        .map(|(expression, _)| format!("    printf(\"%zu\\n\", (size_t)({expression}));\n"))
        .collect();
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\n\
         int main(void) {{\n{lines}    return 0;\n}}\n"
    );
    std::fs::write(&source, text).expect("room");
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "the headers lack something"),
        Err(error) => return println!("SKIPPED: {name}: no C compiler: {error}"),
    }
    let said = Command::new(&program)
        .output()
        .expect("just compiled")
        .stdout;
    let said = String::from_utf8(said).expect("numbers");
    let theirs: Vec<usize> = said
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(theirs.len(), expressions.len());
    for ((expression, ours), theirs) in expressions.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}
