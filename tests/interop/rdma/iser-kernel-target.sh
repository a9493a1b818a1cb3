# Our iSER initiator at the kernel's target (LIO, isert): discovery, blocks verified, in the message of the command and
# through memory windows, the same bytes over TCP, CHAP, refusals, and a target that goes and comes back under load.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nbd,nbds_max=4
# modules: target_core_mod target_core_file iscsi_target_mod ib_isert configfs sha3_generic
# tools: ip rdma cmp libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: block nbd0: shutting down sockets
# log: Unable to (load target_core|request_module for ib_isert|locate Target (IQN|Portal Group))|iSCSI Login negotiation failed
# log: Security negotiation failed|NON_EXISTENT_LUN|Initiator is not allowed|Proposer.s value list
# log: isert: .*
rdma_up
ADDRESS=$RDMA
PORTAL=$RDMA:3260
there=iser://$PORTAL
uri=$there/$LIO_IQN

# lio_rdma BOOLEAN: whether the portal is one over RDMA.
lio_rdma() {
    echo "$1" >$lio_group/np/$PORTAL/iser
}
lio_serve 2
lio_rdma 1
contains "the list" "$(fabrix discover $there)" "$LIO_IQN" "$RDMA" 3260

# 8 KiB of a write go with the command; what is longer goes through a window.
mixed="--rw randrw --size 16M --runtime 1s"
for depth in 1 16 64; do measured $uri/0 $mixed --bs 4k --iodepth $depth; done
measured $uri/0 $mixed --bs 16k --iodepth 8
measured $uri/0 $mixed --bs 64k --iodepth 8
measured $there $mixed --bs 1M --iodepth 4
measured $uri/1 $mixed --bs 64k --iodepth 4 --engine epoll
measured $uri/1 $mixed --bs 4k --numjobs 2

disk=$(fabrix attach $uri/0 --as nbd)
dd if=/dev/urandom of=data bs=1M count=8 2>/dev/null
dd if=data of="$disk" bs=64k oflag=direct conv=fsync 2>/dev/null
fabrix detach "$disk"
cmp -n 8388608 /dev/shm/lio0 data || fail "the target's file has other bytes"

# not_let_in URI PART: as not_opened. Linux may end the connection before its answer has left.
not_let_in() {
    ends_with 3 fabrix bench "$1" --number-ios 10
    case $said in
    *"closed the connection during the login: "*) ;;
    *) contains "what $1 ends with" "$said" "$2" ;;
    esac
}
not_let_in $there/$LIO_IQN-x/0 "has no target of this name"
not_opened $uri/7 "LUN 7"
echo 1 >$lio_group/attrib/authentication
printf me >$lio_group/auth/userid
printf "my own secret" >$lio_group/auth/password
not_opened $uri/0 "does it want a secret"
not_let_in "iser://me%some other secret@$PORTAL/$LIO_IQN/0" "authentication failed"
measured "iser://me%my own secret@$PORTAL/$LIO_IQN/0" $mixed --bs 4k
echo 0 >$lio_group/attrib/authentication

bench_begins $uri/0 --bs 64k --iodepth 8 --runtime 200s
sleep 3
for round in 1 2; do
    bench_goes_on
    echo 0 >$lio_group/enable
    sleep 1
    echo 1 >$lio_group/enable
    bench_comes_back $round
    sleep 1
done
bench_is_interrupted

lio_rdma 0
disk=$(fabrix attach iscsi://$PORTAL/$LIO_IQN/0 --as nbd)
cmp -n 16777216 "$disk" /dev/shm/lio0 || fail "TCP reads other bytes than the target's file has"
fabrix detach "$disk"
echo 0 >$lio_group/enable
rdma_unused_by fabrix
