# The RDMA device is removed under connections, and from an idle server: the command that removes it returns, the processes
# live on and have let go of everything, and a new device can be used.
# modules: rdma_rxe crc32_generic rdma_ucm dummy
# tools: ip rdma libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
rdma_up
for engine in io_uring epoll; do
    ping_serve engine=$engine connections=100
    rdma-ping connect $RDMA:$RDMA_PORT engine=$engine rounds=100000000 >/tmp/client.out 2>&1 &
    client=$!
    wait_for 10 grep -q connected /tmp/ping.out
    timeout 20 rdma link del rxe0 || fail "the device was not removed in time: $(cat /tmp/ping.out /tmp/client.out)"
    contains "the server" "$(cat /tmp/ping.out)" "the device is gone"
    kill -0 $server || fail "the server has ended: $(cat /tmp/ping.out)"
    kill -0 $client || fail "the client has ended: $(cat /tmp/client.out)"
    kill $server $client
    wait || true
    rdma_link
    ping_serve engine=$engine
    rdma-ping connect $RDMA:$RDMA_PORT engine=$engine
    ping_served
    rdma_unused

    # The listener at all addresses hears of no device, and the connection is over: only the watch on the device is left.
    ping_serve_at 0.0.0.0 engine=$engine connections=2
    rdma-ping connect $RDMA:$RDMA_PORT engine=$engine
    wait_for 10 grep -q "ended: connection 1" /tmp/ping.out
    timeout 20 rdma link del rxe0 || fail "the idle server holds the device: $(cat /tmp/ping.out)"
    contains "the server" "$(cat /tmp/ping.out)" "the device is gone"
    rdma_link
    rdma-ping connect $RDMA:$RDMA_PORT engine=$engine
    ping_served
done
