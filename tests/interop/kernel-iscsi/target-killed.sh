# Our target is killed with -9 three times while Linux writes over iSCSI, and started again on the same file: the disk
# keeps its name and its identity, the writers see nothing of it, and everything that was acknowledged is there.
# modules: iscsi_tcp sd_mod brd,rd_nr=1,rd_size=65536 ext4 crc32c_generic
# tools: iscsid iscsiadm mkfs.ext4 mount
# log: connection[0-9]+:0: detected conn error
# log: sd [0-9:]+: (Power-on or device reset occurred|\[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB))
# log: connect to .* failed

# The words of a disk make its identity, unless it has a name.
served="file:/mnt/disk,size=32M,name=killed"
identity() {
    cat "/sys/block/${disk##*/}/device/wwid" "/sys/block/${disk##*/}/size"
}
# That the first writer has gone on since it had so many lines.
has_more_than() {
    [ "$(wc -l </dev/shm/first)" -gt "$1" ]
}

mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt
serve_iscsi $served
initiator
login
before=$(identity)

ledger write "$disk" /dev/shm/first --seconds 100 --until /tmp/enough --size 8 --seed 1 >/tmp/first 2>&1 &
first=$!
ledger write "$disk" /dev/shm/second --seconds 100 --until /tmp/enough --first 8 --size 8 --seed 2 >/tmp/second 2>&1 &
second=$!
wait_for 20 has_more_than 100
for round in 1 2 3; do
    lines=$(wc -l </dev/shm/first)
    wait_for 20 has_more_than $((lines + 100))
    kill -0 $first && kill -0 $second || fail "a writer has ended: $(cat /tmp/first /tmp/second)"
    kill -9 $target
    wait $target || true
    wait_for 30 not session_is LOGGED_IN
    lines=$(wc -l </dev/shm/first)
    serve_iscsi $served
    wait_for 30 has_more_than $((lines + 10))
    is "the state after kill $round" "$(cat /sys/class/iscsi_session/$session/state)" LOGGED_IN
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
logout
stop
# The same of the file itself, past Linux and us.
kept /mnt/disk /dev/shm/first.copy
kept /mnt/disk /dev/shm/second.copy
umount /mnt
