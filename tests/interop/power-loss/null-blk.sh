# A disk with a volatile cache loses power ten times under the kernel's host and our target: every block that was
# acknowledged before the last acknowledged flush is there, and later ones are old or new, never anything else. A
# writer whose flushes never leave Linux is found out.
# modules: nvme-core,multipath=N nvme-tcp null_blk,nr_devices=0 configfs
# tools: nvme
# run: core
# seconds: 240
# log: nvme nvme[0-9]+: (starting error recovery|Property Set error|queue [0-9]+ socket state)
# log: nvme nvme[0-9]+: (failed to connect socket|Failed reconnect)
# log: nvme[0-9]+n1: I/O Cmd
# log: (I/O|critical [a-z ]+|recoverable transport) error, dev (nvme[0-9]+n1|nullb0),
# log: nvme nvme[0-9]+: (queue 0: timeout request 0x[0-9a-f]+ type 4|long keepalive RTT|failed nvme_keep_alive_end_io)

# Without native multipath: with it, Linux 6.1 acknowledges a flush that was in flight when the connection died, though
# nobody answered it (power-loss/unanswered shows it).

# The ledger lies in memory, which keeps its power.
ledger=/dev/shm/ledger
null_blk cache_size=64

attach() {
    serve /dev/nullb0
    connect -i 2 --ctrl-loss-tmo=600 --reconnect-delay=1
    is "the write cache of round $round" "$(queue "$disk" write_cache)" "write back"
}

# power_loss ROUND: writes, and takes away the power. Odd: the disk dies before the target; even: the target before.
# The cache of null_blk is for blocks that its medium has never had: what is there already is overwritten in place. So
# each round writes where nobody has written before.
power_loss() {
    ledger write "$disk" $ledger --seconds 60 --first $(($1 * 4)) --size 4 --seed "$1" >/tmp/writer 2>&1 &
    writer=$!
    wait_for 20 has_flushed $(($1 * 3))
    kill -0 $writer || fail "the writer has ended: $(cat /tmp/writer)"
    if [ $(($1 % 2)) = 0 ]; then
        kill -9 $target
    fi
    echo 0 >$nullb/power
    sleep 0.2
    kill -9 $target $writer 2>/dev/null || true
    wait_for 30 controller_is connecting
    disconnect
    wait $target $writer || true
    echo 1 >$nullb/power
}

flushes() {
    grep -c flush $ledger 2>/dev/null || true
}

before=0
has_flushed() {
    [ "$(flushes)" -ge $((before + $1)) ]
}

round=0
attach
for round in 1 2 3 4 5 6 7 8 9 10; do
    before=$(flushes)
    power_loss $round
    attach
    said=$(ledger check "$disk" $ledger 2>&1) || fail "round $round: $said"
    echo "round $round: $said"
done

# The proof that it would be noticed.
echo "write through" >"/sys/block/${disk##*/}/queue/write_cache"
round=11
before=$(flushes)
power_loss $round
attach
if said=$(ledger check "$disk" $ledger 2>&1); then
    fail "flushes were lost, and nobody noticed: $said"
fi
echo "without flushes: $said"
