# Our NVMe/RDMA host at the kernel's target: discovery, blocks verified in the capsule and through memory windows, one queue
# and several, and a target that goes and comes back under load. What it says where nobody listens.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvmet nvmet-rdma configfs
# modules: null_blk,nr_devices=0 brd,rd_nr=1,rd_size=65536
# tools: ip rdma libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: nvmet: connect request for invalid subsystem
rdma_up
ADDRESS=$RDMA
TRANSPORT=rdma
null_blk
nvmet_serve /dev/nullb0 /dev/ram0
there=nvme+rdma://$RDMA:$NVMET_PORT

for format in text json; do
    found=$(fabrix discover $there -o $format)
    contains "the log as $format" "$found" "$NVMET_NQN" "$RDMA" "$NVMET_PORT" "nvme subsystem" rdma
done

all_received discovery

# 4k goes with the command; all that is longer goes through a window.
mixed="--rw randrw --size 16M --runtime 1s"
for depth in 1 16 64; do
    measured $there/$NVMET_NQN/1 $mixed --bs 4k --iodepth $depth
    all_received "4k at depth $depth"
    measured $there/$NVMET_NQN/1 $mixed --bs 64k --iodepth $depth
    all_received "64k at depth $depth"
done
measured $there/$NVMET_NQN/1 $mixed --bs 1M --iodepth 4
measured $there/$NVMET_NQN/2 $mixed --bs 4k --iodepth 16 -i 2 --numjobs 2
measured $there/$NVMET_NQN/2 $mixed --bs 64k --iodepth 4 --engine epoll
# Without a name, discovery finds the only subsystem.
measured $there $mixed --bs 16k --iodepth 8
all_received "all sizes and engines"

ends_with 2 fabrix bench $there --number-ios 10 --hdr-digest
contains "digests over RDMA" "$said" "no digests"
not_opened nvme+rdma://$RDMA:4999/$NVMET_NQN/1 "nothing listens for RDMA connections"
not_opened $there/$NVMET_NQN.wrong/1 "there is no such subsystem"
# Nobody has this address, and what the kernel says of it comes late.
not_opened nvme+rdma://10.8.0.99:$NVMET_PORT/$NVMET_NQN/1 "nvme+rdma://10.8.0.99"

all_received "what was refused"

before=$(nvmet_controllers)
bench_begins $there/$NVMET_NQN/1 --bs 64k --iodepth 8 -i 2 --runtime 20s
wait_for 30 nvmet_made_more_than $before
sleep 2
for round in 1 2; do
    bench_goes_on
    before=$(nvmet_controllers)
    nvmet_unlink
    sleep 1
    nvmet_link
    wait_for 30 nvmet_made_more_than $before
    sleep 1
    all_received "the return of the listener, round $round"
done
bench_goes_on
all_received "load after the last return"
before=$(nvmet_controllers)
nvmet_remove
sleep 1
nvmet_serve /dev/nullb0
wait_for 30 nvmet_made_more_than $before
all_received "the return of the target"
bench_ends 3
all_received "the end of the load"
nvmet_remove
rdma_unused_by fabrix
