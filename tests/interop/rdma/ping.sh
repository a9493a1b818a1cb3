# Messages, RDMA READ and RDMA WRITE between two processes of ours and between one of ours and rping, in both directions
# and on both engines; a wrong key ends the connection on both sides and is told; nothing is left on the device.
# modules: rdma_rxe crc32_generic rdma_ucm dummy
# tools: ip rdma rping libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 240
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
rdma_up

# ours WORD...: both ends are ours, with the same words.
ours() {
    ping_serve "$@"
    rdma-ping connect $RDMA:$RDMA_PORT "$@" >/tmp/client.out 2>&1 || fail "\`$*\`: $(cat /tmp/client.out /tmp/ping.out)"
    ping_served
    contains "the client" "$(cat /tmp/client.out)" rounds
}

for engine in io_uring epoll; do
    ours engine=$engine bytes=64 echo rounds=200
    ours engine=$engine bytes=64 rounds=200
    ours engine=$engine bytes=1000000 rounds=5
done
ours spin bytes=64 rounds=20
rdma_unused

# Many at the same time, over one completion queue.
ping_serve connections=8
clients=
for client in $(seq 8); do
    rdma-ping connect $RDMA:$RDMA_PORT rounds=50 >/tmp/client$client.out 2>&1 &
    clients="$clients $!"
done
for client in $clients; do
    wait $client || fail "a client of eight ended with $?: $(cat /tmp/client*.out)"
done
ping_served

ping_serve
rping -c -a $RDMA -p $RDMA_PORT -C 50 -S 4096 -V || fail "rping found wrong bytes: $(cat /tmp/ping.out)"
ping_served

rping -s -a $RDMA -p $RDMA_PORT -C 51 -S 4096 &
server=$!
# rping does not say when it listens.
wait_for 10 rdma_listens
rdma-ping connect $RDMA:$RDMA_PORT rounds=50 bytes=4096
# It ends with an error when its client goes.
wait $server || true
rdma_unused

ping_serve
refused rdma-ping connect $RDMA:$RDMA_PORT wrong-key
contains "the client" "$refusal" "ended in round 0"
ping_served
contains "the server" "$(cat /tmp/ping.out)" "failed: remote access error"

# The peer is killed: the connection ends at once, with all that was posted.
ping_serve
rdma-ping connect $RDMA:$RDMA_PORT rounds=100000000 >/dev/null 2>&1 &
client=$!
wait_for 10 grep -q connected /tmp/ping.out
kill -9 $client
ping_served
rdma_unused
