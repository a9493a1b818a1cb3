# Every way in which RDMA can be missing is a sentence that says what to do, in `doctor` too: no library, no device, no
# provider, no connection manager, devices that cannot be opened, an address without RDMA, nobody who listens, a port that
# is in use, and too little memory that may be locked.
# modules: rdma_rxe crc32_generic rdma_ucm dummy
# tools: ip rdma setpriv libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# log: speed is unknown
# log: rxe_reg_user_mr: returned err = -12
# log: rxe_mr_init_user: Unable to pin memory region err = -12
libraries=/usr/lib/x86_64-linux-gnu

# says PART...: what is missing, as a connection and as `doctor` say it.
says() {
    refused rdma-ping look
    contains "a connection" "$refusal" "$@"
    contains doctor "$(fabrix doctor)" "$@"
}

mv $libraries/libibverbs.so.1 /tmp
says "libibverbs.so.1: cannot open shared object file" "libibverbs1"
mv /tmp/libibverbs.so.1 $libraries
mv $libraries/librdmacm.so.1 /tmp
says "librdmacm.so.1: cannot open shared object file" "librdmacm1"
mv /tmp/librdmacm.so.1 $libraries
says "this machine has no RDMA device" "rdma link add"

rdma_up
rdma-ping look
contains doctor "$(fabrix doctor)" "rxe0 port 1: ACTIVE" d0
mv $PROVIDER /tmp
says "no provider for rxe0" ibverbs-providers
mv /tmp/rxe.driver $PROVIDER

mv /dev/infiniband/rdma_cm /dev/moved
says "/dev/infiniband/rdma_cm is not there" "modprobe rdma_ucm"
mv /dev/moved /dev/infiniband/rdma_cm

# become_nobody LOCKED WORD...: this shell becomes the command of a user who may lock so many KiB.
become_nobody() {
    ulimit -l "$1"
    shift
    exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

as_nobody() {
    (become_nobody "$@")
}
chmod 600 /dev/infiniband/rdma_cm
refused as_nobody 8192 rdma-ping look
contains "a connection" "$refusal" "/dev/infiniband/rdma_cm cannot be opened" chmod
chmod 666 /dev/infiniband/rdma_cm
chmod 600 /dev/infiniband/uverbs0
refused as_nobody 8192 rdma-ping look
contains "a connection" "$refusal" "/dev/infiniband/uverbs0 cannot be opened" chmod
refused as_nobody 8192 rdma-ping connect $RDMA:$RDMA_PORT
contains "a connection" "$refusal" "cannot be opened"
chmod 666 /dev/infiniband/uverbs0

refused rdma-ping connect 127.0.0.1:$RDMA_PORT
contains "a connection" "$refusal" "no RDMA device of this machine"
refused rdma-ping connect $RDMA:$RDMA_PORT
contains "a connection" "$refusal" "nothing listens"
ping_serve
refused rdma-ping serve $RDMA:$RDMA_PORT
case $refusal in
*"Address already in use"* | *"Cannot assign requested address"*) ;;
*) fail "the second server says: $refusal" ;;
esac
refused as_nobody 64 rdma-ping connect $RDMA:$RDMA_PORT
contains "a client that may lock 64 KiB" "$refusal" "Cannot allocate memory"
as_nobody 16384 rdma-ping connect $RDMA:$RDMA_PORT
ping_served

# Our target, as nobody: without the right to open the device, then with little memory that may be locked. A host that
# connects is refused with the limit in the log, and the target goes on. With enough memory it serves.
chmod 600 /dev/infiniband/uverbs0
refused as_nobody 16384 fabrix serve ram:16M --listen nvme+rdma://$RDMA --allow any
contains "the target" "$refusal" "cannot listen on $RDMA:4420" "/dev/infiniband/uverbs0 cannot be opened"
chmod 666 /dev/infiniband/uverbs0
# serve_as_nobody LOCKED: our target as a user who may lock so many KiB.
serve_as_nobody() {
    : >/tmp/serve.out
    become_nobody "$1" fabrix serve --nqn $NQN ram:16M --listen nvme+rdma://$RDMA --allow any -o json >/tmp/serve.out \
        2>/tmp/serve.err &
    target=$!
    wait_for 30 serves_or_ended
    kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
}
DISK=nvme+rdma://$RDMA/$NQN/1
serve_as_nobody 64
contains "the target's warning" "$(cat /tmp/serve.err)" "locked memory: 65536 bytes" "ulimit -l"
for protocol in nvme+rdma iser; do
    refused as_nobody 64 fabrix bench $protocol://$RDMA/$NQN/1 --runtime 1s
    contains "the host over $protocol" "$refusal" "locked memory" "ulimit -l"
done
refused fabrix bench $DISK --runtime 1s
contains "the target's log" "$(cat /tmp/serve.err)" "RDMA connection cannot be made" "ulimit -l"
kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
stop
serve_as_nobody 65536
fabrix bench $DISK --runtime 1s >/dev/null
stop

# Loopback and an address of another machine.
for address in 127.0.0.1 10.9.9.9; do
    refused fabrix serve ram:16M --listen nvme+rdma://$address --allow any
    contains "the target at $address" "$refusal" "$address"
    case $refusal in
    *"does not run over loopback"* | *"is not an address of this machine"*) ;;
    *) fail "the target at $address says: $refusal" ;;
    esac
done
rdma_unused
