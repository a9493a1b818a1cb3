# What ends connections of the kernel's iSER initiator: resets under load, a target that is killed and comes back, a target
# that stands still, and the RDMA device that is removed. The initiator comes back, and no data is wrong.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy ib_iser iscsi_tcp sd_mod sg
# tools: ip rdma iscsid iscsiadm fio sg_reset libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: (iser|iscsi): .*|connection[0-9]+:0: .*|session[0-9]+: .*
# log: sd [0-9:]+: (Power-on or device reset occurred|\[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB))
# log: (Buffer )?I/O error, dev sd.*|connect to .* failed
rdma_up
PORTAL=$RDMA:3260

serves() {
    serve file:/tmp/disk,size=64M,direct=off,name=lost --listen iser://$RDMA --listen iscsi://$RDMA --allow any
}

serves
initiator node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=2
discover -I iser
login -I iser
load $disk "${disk##*/}"
load_goes_on
for what in --device --target; do
    sg_reset --no-esc $what "$(sg $disk)" || fail "$what ended with $?"
    wait_for 30 session_is LOGGED_IN
    load_goes_on
done

kill -9 $target
wait $target || true
wait_for 30 not session_is LOGGED_IN
serves
wait_for 60 session_is LOGGED_IN
load_goes_on

# The kernel answers for a process that stands still, so only the initiator's pings notice.
kill -STOP $target
wait_for 60 not session_is LOGGED_IN
kill -CONT $target
wait_for 60 session_is LOGGED_IN
load_goes_on
kill $load || true
load_was_right

load $disk "${disk##*/}"
load_goes_on
timeout 60 rdma link del rxe0 || fail "the device was not removed in time: $(cat /tmp/serve.err)"
wait_for 10 grep -q "the RDMA device of $PORTAL is gone" /tmp/serve.err
kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
rdma_link
wait_for 30 grep -q "can connect there again" /tmp/serve.err
wait_for 60 session_is LOGGED_IN
load_goes_on
kill $load || true
load_was_right
logout -I iser
stop
rdma_unused_by fabrix
