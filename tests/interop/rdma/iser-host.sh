# Our iSER initiator at our target: discovery, blocks verified on both engines, a disk attached over NBD and exported again,
# the same bytes over TCP, CHAP, and a target that is killed, stands still, or loses its RDMA device under load.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nbd,nbds_max=4
# tools: ip rdma fio cmp libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: block nbd0: shutting down sockets
rdma_up
ADDRESS=$RDMA
PORTAL=$RDMA:3260
there=iser://$RDMA
uri=$there/$IQN/0

serves() {
    serve file:/tmp/disk,size=64M,direct=off,name=rdma --listen iser://$RDMA --listen iscsi://$RDMA --allow any "$@"
}
serves
for format in text json; do
    contains "the list as $format" "$(fabrix discover $there -o $format)" "$IQN" "$RDMA" 3260
done
mixed="--rw randrw --size 16M --runtime 1s"
for engine in io-uring epoll; do
    for depth in 1 16 64; do measured $uri $mixed --bs 4k --iodepth $depth --engine $engine; done
    measured $uri $mixed --bs 64k --iodepth 8 --engine $engine
    measured $there $mixed --bs 1M --iodepth 4 --engine $engine
done
ends_with 2 fabrix bench $uri --number-ios 10 --hdr-digest
contains "digests over RDMA" "$said" "no digests"
not_opened iser://$RDMA:4999/$IQN/0 "nothing listens for RDMA connections"
not_opened $there/$IQN-x/0 "no target of this name"
not_opened $there/$IQN/7 "LUN 7"

# As a block device over RDMA, and the same bytes over TCP.
disk=$(fabrix attach $uri --as nbd)
fio --name=verified --filename="$disk" --direct=1 --ioengine=libaio --iodepth=8 --bs=4k-64k --rw=randwrite --size=8M \
    --verify=crc32c --verify_fatal=1 >fio.out 2>&1 || fail "fio: $(cat fio.out)"
dd if=/dev/urandom of=data bs=1M count=8 2>/dev/null
dd if=data of="$disk" bs=64k oflag=direct conv=fsync 2>/dev/null
fabrix detach "$disk"
disk=$(fabrix attach iscsi://$PORTAL/$IQN/0 --as nbd)
cmp -n 8388608 "$disk" data || fail "TCP reads other bytes than RDMA has written"
fabrix detach "$disk"

# Through a gateway.
measured_through_gateway $uri $mixed --bs 16k --iodepth 8

bench_begins $uri --bs 64k --iodepth 8 --runtime 200s --keep-alive-tmo 4s
sleep 3
bench_goes_on
kill -9 $target
wait $target || true
serves
bench_comes_back 1
sleep 2
# The kernel answers for a process that stands still, so only our pings notice.
kill -STOP $target
wait_for 60 grep -q "no answer to a" /tmp/bench.err
kill -CONT $target
bench_comes_back 2
sleep 2
bench_goes_on
timeout 20 rdma link del rxe0 || fail "the device was not removed in time: $(cat /tmp/bench.err)"
bench_goes_on
rdma_link
bench_comes_back 3
sleep 2
bench_goes_on
bench_is_interrupted
stop
rdma_unused_by fabrix

# A secret of ours, and one of the target's.
serves --chap me%my-own-secret
not_opened $uri "authentication failed"
not_opened iser://me%some-other-secret@$RDMA/$IQN/0 "authentication failed"
measured iser://me%my-own-secret@$RDMA/$IQN/0 $mixed --bs 4k
stop
rdma_unused_by fabrix
