# `fabrix bench net` measures RDMA between two of ours: pings, SEND, WRITE and READ of several sizes; against `rping -s`
# it pings, and rping pings our server. What is missing, wrong, gone or silent is a sentence with its exit code, and
# nothing is left on the device.
# modules: rdma_rxe crc32_generic rdma_ucm dummy
# tools: ip rdma rping setpriv libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: rxe_reg_user_mr: returned err = -12
# log: rxe_mr_init_user: Unable to pin memory region err = -12
net="fabrix bench net"
uri=rdma://$RDMA:$RDMA_PORT

# net_serve WORD...: starts the other end with these words, and waits until it listens. Its process is $server.
net_serve() {
    : >/tmp/net.out
    $net --server "$@" >/tmp/net.json 2>/tmp/net.out &
    server=$!
    wait_for 10 net_listens_or_ended
    kill -0 $server || fail "the server has ended: $(cat /tmp/net.out)"
}

net_listens_or_ended() {
    grep -q "listening at" /tmp/net.out || ! kill -0 $server
}

net_stop() {
    kill $server
    wait $server || fail "the server ended with $?: $(cat /tmp/net.out)"
}

# measures WORD...: a short measurement, whose JSON is /tmp/found.json.
measures() {
    $net "$@" -t 0.2 -o json >/tmp/found.json 2>/tmp/found.err || fail "\`$*\`: $(cat /tmp/found.err /tmp/net.out)"
    contains "the result" "$(cat /tmp/found.json)" '"warnings": []'
}

# Starts a long measurement, and waits until it has pinged ten times. Its process is $client.
measuring() {
    before=$(cat $sends)
    $net $uri -t 600 --sizes 64 >/tmp/found.out 2>&1 &
    client=$!
    wait_for 10 has_sent $((before + 40))
}

# Messages that the device has sent; a ping takes four.
sends=/sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends
has_sent() {
    [ "$(cat $sends)" -ge "$1" ]
}

# gives_up PART...: the long measurement ends with 1, shows its pings, and says why.
gives_up() {
    status=0
    wait $client || status=$?
    is "the end of the client" $status 1
    contains "the client" "$(cat /tmp/found.out)" "pings/s" "$@"
}

# rows TEXT COUNT: so many rows of the tables have this cell.
rows() {
    is "rows of $1" "$(grep -c "^ *\"$1\",\$" /tmp/found.json)" "$2"
}

ends_with 3 $net $uri
contains "a client without a device" "$said" "RDMA cannot be used: this machine has no RDMA device"
ends_with 1 $net --server 0.0.0.0:$RDMA_PORT --rdma
contains "a server without a device" "$said" "cannot listen for RDMA" "this machine has no RDMA device"

rdma_up
ends_with 3 $net $uri
contains "a client alone" "$said" "nothing listens for RDMA"
ends_with 3 $net rdma://127.0.0.1:$RDMA_PORT
contains "a client at loopback" "$said" "does not run over loopback"
ends_with 1 $net --server 127.0.0.1:$RDMA_PORT --rdma
contains "a server at loopback" "$said" "does not run over loopback" "name an address"
for words in "--sizes 0" "--sizes 2M" "--sizes 1M --iodepth 65" -R "-t 2h"; do
    ends_with 2 $net $uri $words
done

# One server, for TCP and for RDMA; one command that measures both.
net_serve 0.0.0.0:$RDMA_PORT --rdma
measures $RDMA:$RDMA_PORT --rdma --sizes 64,4k,64k --iodepth 8 --report /tmp/report
for operation in SEND WRITE READ; do
    rows $operation 6
done
rows "both ways" 1
for name in rdma-ping rdma-latency rdma-bandwidth streams; do
    contains "the result" "$(cat /tmp/found.json)" "\"name\": \"$name\""
done
ls /tmp/report/rdma-latency.svg /tmp/report/rdma-bandwidth.svg
cat /tmp/report/rdma-*.csv
measures $uri --sizes 1,1M --iodepth 16
rows SEND 4
measures $uri --sizes 256,257 --iodepth 64 -P 4
rows READ 4
rping -c -a $RDMA -p $RDMA_PORT -C 50 -S 4096 -V || fail "rping found wrong bytes: $(cat /tmp/net.out)"

net_stop
rdma_unused

# rping is the other end.
rping_serve() {
    rping -s -a $RDMA -p $RDMA_PORT "$@" >/tmp/net.out 2>&1 &
    server=$!
    # rping does not say when it listens.
    wait_for 10 rdma_listens
}
rping_serve
measures $uri
rows 64 1
wait $server || true
rping_serve -S 4096
measures $uri --sizes 4k
rows 4k 1
contains "the result" "$(cat /tmp/found.json)" "plain rping"
# It ends with an error when its client goes.
wait $server || true
rping_serve -S 64
ends_with 1 $net $uri --sizes 4k
contains "a ping that is too long" "$said" "-S 4096"
wait $server || true
rdma_unused

# The server is silent, before the connection and in it; then it is killed.
net_serve $RDMA:$RDMA_PORT --rdma
kill -STOP $server
ends_with 3 $net $uri
contains "a client of a stopped server" "$said" "does not answer within 10 s"
kill -CONT $server
measuring
kill -STOP $server
gives_up "silent for 10 s"
kill -CONT $server
measuring
kill -9 $server
gives_up "the server has ended the connection"
wait $server || true
rdma_unused

# An interrupt shows what was measured, and the server goes on without a client that was killed.
net_serve $RDMA:$RDMA_PORT --rdma
measuring
kill -INT $client
gives_up interrupted
measuring
kill -9 $client
wait $client || true
measures $uri --sizes 64

# The device is removed under both ends: the command returns, and both say so.
measuring
timeout 20 rdma link del rxe0 || fail "the device was not removed in time: $(cat /tmp/net.out /tmp/found.out)"
gives_up
contains "the server" "$(cat /tmp/net.out)" "RDMA is no longer served"
measures $RDMA:$RDMA_PORT
net_stop
rdma_link

# A server that may lock almost no memory refuses, and says why.
(ulimit -l 64 && exec setpriv --reuid=65534 --regid=65534 --clear-groups $net --server $RDMA:$RDMA_PORT --rdma) \
    >/tmp/net.json 2>/tmp/net.out &
server=$!
wait_for 10 net_listens_or_ended
ends_with 3 $net $uri
contains "a client of a server without memory" "$said" "no memory for this measurement" "ulimit -l"
net_stop
rdma_unused
