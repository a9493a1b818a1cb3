# Instructions of our target for one read of 4 KiB over NVMe/RDMA, without the kernel's: callgrind counts, and what is
# there besides the reads falls out, because each figure is the difference of a longer and a shorter run.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvme-rdma
# tools: ip rdma nvme fio valgrind.bin callgrind-amd64-linux libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# seconds: 900
# clock: instructions
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
rdma_up
ADDRESS=$RDMA
TRANSPORT=rdma
export VALGRIND_LIB=/usr/bin

# Starts our target, whose instructions are counted. valgrind lets all other threads wait while one is in the system call
# of io_uring, so the engine is epoll.
serve_counted() {
    : >/tmp/serve.out
    valgrind.bin --tool=callgrind --vgdb=no --callgrind-out-file=/dev/null --log-file=/tmp/callgrind \
        /usr/bin/fabrix serve --engine epoll --nqn $NQN "$@" -o json >/tmp/serve.out 2>/tmp/serve.err &
    target=$!
    wait_for 300 serves_or_ended
    kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err /tmp/callgrind)"
}

# read_blocks DEPTH COUNT: the instructions of the target are in $instructions.
read_blocks() {
    serve_counted ram:16M --listen nvme+rdma://$RDMA --allow any
    connect -i 1
    fio --name=counted --filename="$(disk_of 1)" --direct=1 --ioengine=libaio --iodepth="$1" --bs=4k --rw=randread \
        --size=16M --number_ios="$2" --randrepeat=1 >fio.out || fail "fio: $(cat fio.out)"
    disconnect
    stop
    instructions=$(sed -n 's/.*Collected : //p' /tmp/callgrind)
}

for depth in 1 16; do
    read_blocks $depth 1000
    few=$instructions
    read_blocks $depth 3000
    echo "read-4k-$depth: $(((instructions - few) / 2000)) instructions"
done
