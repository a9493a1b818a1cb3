# Linux acknowledges no flush that our target did not answer: the target is stopped with one in flight, and killed. (With
# native multipath, Linux 6.1 does acknowledge it: try it without the `multipath=N` here.)
# modules: nvme-core,multipath=N nvme-tcp null_blk,nr_devices=0 configfs
# tools: nvme
# log: nvme nvme[0-9]+: (starting error recovery|Property Set error|queue [0-9]+ socket state)
# log: nvme[0-9]+n1: I/O Cmd
# log: (I/O|recoverable transport) error, dev nvme[0-9]+n1,
# log: nvme nvme[0-9]+: (queue 0: timeout request 0x[0-9a-f]+ type 4|long keepalive RTT|failed nvme_keep_alive_end_io)
null_blk cache_size=64
is_stopped() {
    grep -q "State:.T" /proc/$target/status
}

# The last step of the writer: after an `ack` it waits for a flush.
last() {
    tail -n 1 /dev/shm/ledger
}

# Until a flush was in flight three times: every second thing that this writer waits for is one.
seen=0 round=0
while [ $seen -lt 3 ]; do
    round=$((round + 1))
    [ $round -le 20 ] || fail "the target was never stopped in a flush"
    serve /dev/nullb0
    connect --ctrl-loss-tmo=600 --reconnect-delay=1
    rm -f /dev/shm/ledger
    ledger write "$disk" /dev/shm/ledger --seconds 60 --flush-every 1 --seed $round >/tmp/writer 2>&1 &
    writer=$!
    sleep 0.5
    kill -STOP $target
    wait_for 5 is_stopped
    sleep 0.5
    before=$(last)
    kill -9 $target
    wait $target || true
    wait_for 30 controller_is connecting
    sleep 0.5
    is "the last step after the target's death" "$(last)" "$before"
    kill -9 $writer
    disconnect
    wait $writer || true
    case $before in
    ack*) seen=$((seen + 1)) ;;
    esac
done
