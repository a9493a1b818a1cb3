# Instructions of our target for one read of 4 KiB over NVMe/RDMA, without the kernel's: callgrind counts, and what is
# there besides the reads falls out, because each figure is the difference of a longer and a shorter run.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvme-rdma
# tools: ip rdma nvme fio valgrind callgrind-amd64-linux libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# seconds: 900
# clock: instructions
# log: speed is unknown
# log: rxe0: .*non-flush error
rdma_up
ADDRESS=$RDMA
TRANSPORT=rdma
export VALGRIND_LIB=/usr/bin

# The target that `serve` starts is counted.
fabrix() {
    exec valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file=/tmp/callgrind /usr/bin/fabrix "$@"
}

# read_blocks DEPTH COUNT: the instructions of the target are in $instructions.
read_blocks() {
    serve ram:16M --listen nvme+rdma://$RDMA --allow any
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
