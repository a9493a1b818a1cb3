# Our iSER initiator at stgt's target (tgtd) over RDMA: discovery, and blocks verified that stgt reads and writes through
# memory windows, which it leaves for us to close.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy
# tools: ip rdma tgtd tgtadm libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# seconds: 180
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
STGT_IQN=iqn.2026-01.org.example:stgt
uri=iser://$RDMA/$STGT_IQN
rdma_up

# admin VERB KIND WORD...
admin() {
    verb=$1 kind=$2
    shift 2
    ends_with 0 tgtadm --lld iser --op $verb --mode $kind "$@"
}
mkdir -p /var/run/tgtd
# A smaller pool than the usual one of 1 GiB, which this machine has not.
tgtd -f --iser pool_sz_mb=128 >tgtd.out 2>&1 &
stgt=$!
wait_for 30 tgtadm --lld iser --op show --mode target
truncate -s 32M /dev/shm/stgt
admin new target --tid 1 --targetname $STGT_IQN
admin new logicalunit --tid 1 --lun 1 --backing-store /dev/shm/stgt
# Over RDMA stgt knows initiators by their names, and not by their addresses.
admin bind target --tid 1 --initiator-address ALL
admin bind target --tid 1 --initiator-name $INITIATOR
we="--initiator-name $INITIATOR"

contains "the list" "$(fabrix discover iser://$RDMA $we)" "$STGT_IQN" "$RDMA" 3260
mixed="--rw randrw --size 16M --runtime 1s"
for depth in 1 16; do measured $uri/1 $we $mixed --bs 4k --iodepth $depth; done
measured $uri/1 $we $mixed --bs 64k --iodepth 8
# The first logical unit that is a disk: number 0 is stgt's controller.
measured iser://$RDMA $we $mixed --bs 256k --iodepth 4 --engine epoll
not_opened $uri/1 "no target of this name"
kill -9 $stgt
wait $stgt || true
rdma_unused_by fabrix
