# Our NVMe/RDMA host at our target: discovery, blocks verified on both engines, a disk attached over NBD and exported again,
# and a target that is killed under load and comes back.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nbd,nbds_max=4
# tools: ip rdma fio libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: block nbd0: shutting down sockets
rdma_up
ADDRESS=$RDMA
there=nvme+rdma://$RDMA

serves() {
    serve file:/tmp/disk,size=64M,direct=off,name=rdma --listen nvme+rdma://$RDMA --allow any
}
serves
contains "the log" "$(fabrix discover $there)" "$NQN" "$RDMA" 4420 rdma
mixed="--rw randrw --size 16M --runtime 1s"
for engine in io-uring epoll; do
    for depth in 1 16 64; do measured $there $mixed --bs 4k --iodepth $depth --engine $engine; done
    measured $there $mixed --bs 64k --iodepth 8 -i 2 --engine $engine
    measured $there $mixed --bs 1M --iodepth 4 --engine $engine
done

# As a block device, and from there through a gateway.
disk=$(fabrix attach $there --as nbd)
fio --name=verified --filename="$disk" --direct=1 --ioengine=libaio --iodepth=8 --bs=4k-64k --rw=randwrite --size=8M \
    --verify=crc32c --verify_fatal=1 >fio.out 2>&1 || fail "fio: $(cat fio.out)"
fabrix detach "$disk"
measured_through_gateway $there $mixed --bs 16k --iodepth 8

bench_begins $there --bs 64k --iodepth 8 --runtime 12s
sleep 3
kill -9 $target
wait $target || true
serves
bench_ends 1

stop
rdma_unused
