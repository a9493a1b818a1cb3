# Our target is killed five times while Linux writes, and started again on the same file: the disk keeps its name and its
# identity, the writers see nothing of it, and everything that was acknowledged is there.
# modules: nvme-tcp brd,rd_nr=1,rd_size=65536 ext4 crc32c_generic
# tools: nvme mkfs.ext4 mount
# run: core
# log: nvme nvme[0-9]+: (starting error recovery|queue [0-9]+ socket state)
# log: nvme nvme[0-9]+: (failed to connect socket|Failed reconnect)
# log: block nvme[0-9]+n1: no usable path
# log: nvme nvme[0-9]+: (queue 0: timeout request 0x[0-9a-f]+ type 4|long keepalive RTT|failed nvme_keep_alive_end_io)

# The words of a disk make its identity, unless it has a name.
served="file:/mnt/disk,size=32M,name=killed"
identity() {
    cat "/sys/block/${disk##*/}/uuid" "/sys/block/${disk##*/}/nguid" "/sys/block/${disk##*/}/size"
}
# That the first writer has gone on since it had so many lines.
has_more_than() {
    [ "$(wc -l </dev/shm/first)" -gt "$1" ]
}

mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt
serve $served
connect -i 2 --ctrl-loss-tmo=600 --reconnect-delay=1
before=$(identity)

# Two writers, so that both queues have something in flight.
ledger write "$disk" /dev/shm/first --seconds 100 --until /tmp/enough --size 8 --seed 1 >/tmp/first 2>&1 &
first=$!
ledger write "$disk" /dev/shm/second --seconds 100 --until /tmp/enough --first 8 --size 8 --seed 2 >/tmp/second 2>&1 &
second=$!
wait_for 20 has_more_than 100
for round in 1 2 3 4 5; do
    lines=$(wc -l </dev/shm/first)
    wait_for 20 has_more_than $((lines + 100))
    kill -0 $first && kill -0 $second || fail "a writer has ended: $(cat /tmp/first /tmp/second)"
    kill -9 $target
    wait $target || true
    wait_for 30 controller_is connecting
    lines=$(wc -l </dev/shm/first)
    serve $served
    wait_for 30 has_more_than $((lines + 10))
    is "the state after kill $round" "$(cat /sys/class/nvme/$ctrl/state)" live
    is "the identity after kill $round" "$(identity)" "$before"
done
touch /tmp/enough
wait $first || fail "the first writer ended with $?: $(cat /tmp/first)"
wait $second || fail "the second writer ended with $?: $(cat /tmp/second)"

# A target that dies takes no power away: what was never flushed is there too.
kept() {
    said=$(ledger check "$1" "$2" 2>&1) || fail "$1 by $2: $said"
    contains "$1 by $2" "$said" " 0 lost" " 0 old" "wrong: 0"
    echo "$2: $said"
}
for ledger in /dev/shm/first /dev/shm/second; do
    cp $ledger $ledger.copy
    kept "$disk" $ledger
done
disconnect
stop
# The same of the file itself, past Linux and us.
kept /mnt/disk /dev/shm/first.copy
kept /mnt/disk /dev/shm/second.copy
umount /mnt
