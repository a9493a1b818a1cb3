# What ends connections of the kernel's NVMe/RDMA host: a reset under load, a target that is killed and comes back, a target
# that stands still, and the RDMA device that is removed. The host comes back, and no data is wrong.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvme-rdma nvme-tcp
# tools: ip rdma nvme fio libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: nvme nvme[0-9]+: .*
# log: no (usable path - requeuing|available path - failing) I/O|callbacks suppressed
# log: (Buffer )?I/O error, dev nvme.*
# log: nvme.*: (RECV|SEND|MEMREG|INV) for CQE .*
rdma_up
ADDRESS=$RDMA
TRANSPORT=rdma

serves() {
    serve file:/tmp/disk,size=64M,direct=off --listen nvme+rdma://$RDMA --allow any
}

serves
connect -i 2 --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5
disk=$(disk_of 1)
load "$disk" "nvme*"
load_goes_on

nvme reset /dev/$ctrl
wait_for 30 controller_is live
load_goes_on

kill -9 $target
wait $target || true
serves
wait_for 60 controller_is live
load_goes_on

# The kernel answers for a process that stands still, so only the keep-alive notices.
kill -STOP $target
wait_for 60 not controller_is live
kill -CONT $target
wait_for 60 controller_is live
load_goes_on

kill $load
load_was_right

# Linux gives up the controllers of a device that is removed.
load "$disk" "nvme*"
load_goes_on
timeout 20 rdma link del rxe0 || fail "the device was not removed in time: $(cat /tmp/serve.err)"
wait_for 10 grep -q "the RDMA device of $RDMA:4420 is gone" /tmp/serve.err
kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
load_was_right
rdma_link
wait_for 30 grep -q "can connect there again" /tmp/serve.err
connect -i 2
disk=$(disk_of 1)
load "$disk" "nvme*"
load_goes_on
kill $load
wait $load || true
disconnect
stop
rdma_unused_by fabrix
