# The kernel's NVMe/RDMA host at our target: discovery, what the controller says of itself, and data verified by fio, in
# the capsule and by RDMA READ and WRITE, with one queue and two, on both engines. The same disk over TCP meanwhile.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvme-rdma nvme-tcp
# tools: ip rdma nvme fio cmp blkdiscard libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# run: core
# kernel: own newer
# seconds: 240
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
rdma_up
ADDRESS=$RDMA

serve ram:64M ram:64M,block=4096 --listen nvme+rdma://$RDMA --listen nvme+tcp://$RDMA --allow any
contains "the commands" "$(cat /tmp/serve.out)" "nvme connect -t rdma -a $RDMA"
found=$(nvme discover -t rdma -a $RDMA -s 4420)
contains "discovery over RDMA" "$found" "trtype:  rdma"
contains "discovery over RDMA" "$found" "trtype:  tcp"
contains "discovery over RDMA" "$found" "rdma_prtype: not specified"

TRANSPORT=rdma
for words in "-i 1" "-i 2"; do
    # shellcheck disable=SC2086
    connect $words
    wait_for 30 has_disks 1 2
    one=$(disk_of 1) two=$(disk_of 2)
    said=$(nvme id-ctrl /dev/$ctrl)
    contains "the controller" "$said" "sgls      : 0x100005"
    contains "the controller" "$said" "ioccsz    : 260"
    contains "the controller" "$said" "msdbd     : 16"
    for depth in 1 16 64; do fio_verifies $one $depth 4k; done
    fio_verifies $one 4 16k
    fio_verifies $two 8 64k
    fio_verifies $two 2 1m
    nvme flush $one
    blkdiscard $two
    is_zero "a discarded disk" $two 64
    disconnect
    TRANSPORT=rdma
done

# What was written over RDMA is read over TCP, and the other way round.
connect -i 1
fio_verifies $(disk_of 1) 4 16k
cmp -n 4194304 $(disk_of 1) /dev/zero >/dev/null && fail "nothing was written"
dd if=$(disk_of 1) of=/tmp/rdma.bytes bs=1M count=8 iflag=direct 2>/dev/null
disconnect
TRANSPORT=tcp
connect -i 1
cmp -n 8388608 $(disk_of 1) /tmp/rdma.bytes || fail "TCP reads other bytes than RDMA"
dd if=/dev/urandom of=/tmp/tcp.bytes bs=1M count=8 2>/dev/null
dd if=/tmp/tcp.bytes of=$(disk_of 1) bs=64k oflag=direct 2>/dev/null
disconnect
TRANSPORT=rdma
connect -i 1
dd if=$(disk_of 1) of=/tmp/rdma.bytes bs=1M count=8 iflag=direct 2>/dev/null
cmp /tmp/tcp.bytes /tmp/rdma.bytes || fail "RDMA reads other bytes than TCP has written"
disconnect
stop
rdma_unused_by fabrix
