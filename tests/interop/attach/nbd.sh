# Disks of our target, over NVMe/TCP and over iSCSI, as /dev/nbdN of the kernel's NBD client: made, mounted, verified with
# fio, trimmed, resized; the target is killed under load and nothing is lost; detached politely, and by force with the
# target gone; and what a killed process of ours has left is cleared away.
# modules: nbd,nbds_max=4 brd,rd_nr=1,rd_size=131072 ext4 crc32c_generic
# tools: fio mkfs.ext4 fsck.ext4 mount fstrim
# seconds: 360
# log: block nbd[0-9]+: (Receive control failed|shutting down sockets|Send disconnect failed|Dead connection)
# log: block nbd[0-9]+: (Attempted send|Request send failed|Possible stuck request)
# log: (Buffer )?I/O error(,| on) dev nbd[0-9]+
# log: Dev nbd[0-9]+: unable to read RDB block
# log: (blk_print_req_error|buffer_io_error): [0-9]+ callbacks suppressed

served="--listen nvme+tcp://$ADDRESS:$PORT --listen iscsi://$PORTAL file:/mnt/disk,size=64M,name=killed"
target_starts() {
    # shellcheck disable=SC2086
    serve $served
}
sectors() {
    cat "/sys/block/${1##*/}/size"
}
has_no_size() {
    [ "$(sectors "$1")" = 0 ]
}
# That the writer has gone on since it had so many lines.
has_more_than() {
    [ "$(wc -l </dev/shm/ledger)" -gt "$1" ]
}
target_goes() {
    kill -9 $target
    wait $target || true
}
# Somebody reads $disk and has no answer yet: $reader.
reader_waits() {
    dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
    reader=$!
    wait_for 10 grep -q '[1-9]' "/sys/block/${disk##*/}/inflight"
}
# The process of the only attachment is killed, and the driver has seen the end of the connection: the kernel ends what
# io_uring has in progress behind the process.
holder_killed() {
    lost=$(connections_lost)
    kill -9 "$(fabrix list -o json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)"
    wait_for 30 one_more_is_lost
}
connections_lost() {
    dmesg | grep -c "nbd[0-9]*: Receive control failed" || true
}
one_more_is_lost() {
    [ "$(connections_lost)" -gt "$lost" ]
}

mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt
mkdir /tmp/there
target_starts

for uri in nvme+tcp://$ADDRESS:$PORT/$NQN iscsi://$PORTAL/$IQN/0; do
    disk=$(fabrix attach "$uri" --as nbd --name one)
    contains "the device" "$disk" /dev/nbd
    is "the size" "$(sectors "$disk")" $((64 << 11))
    is "the block" "$(queue "$disk" logical_block_size)" 512
    is "the cache" "$(queue "$disk" write_cache)" "write back"
    [ "$(queue "$disk" discard_max_bytes)" -gt 0 ] || fail "Linux discards nothing"
    # There is one for each connection. With several, the driver may never read from some (docs/INTEROP.md).
    is "the queues" "$(ls "/sys/block/${disk##*/}/mq" | wc -l)" 1
    fio --name=verify --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bsrange=512-256k \
        --size=32M --verify=crc32c --verify_fatal=1 --output=/tmp/fio.out || fail "$(cat /tmp/fio.out)"

    mkfs.ext4 -q "$disk"
    mount "$disk" /tmp/there
    dd if=/dev/urandom of=/tmp/there/data bs=1M count=24 conv=fsync
    sum=$(sha256sum </tmp/there/data)
    refused fabrix detach one
    contains "the refusal" "$refusal" "mounted at /tmp/there"
    before=$(stat -c %b /mnt/disk)
    dd if=/dev/zero of=/tmp/there/more bs=1M count=16 conv=fsync
    rm /tmp/there/more
    sync
    fstrim -v /tmp/there
    [ "$(stat -c %b /mnt/disk)" -lt $((before + (8 << 11))) ] || fail "trimming gave nothing back"
    echo 3 >/proc/sys/vm/drop_caches
    is "what was written" "$(sha256sum </tmp/there/data)" "$sum"
    umount /tmp/there
    fsck.ext4 -fn "$disk"

    rm -f /dev/shm/ledger /tmp/enough
    ledger write "$disk" /dev/shm/ledger --seconds 100 --until /tmp/enough --size 8 --seed 1 >/tmp/ledger 2>&1 &
    writer=$!
    for round in 1 2 3; do
        wait_for 20 has_more_than $((round * 30))
        lines=$(wc -l </dev/shm/ledger)
        target_goes
        target_starts
        wait_for 30 has_more_than $((lines + 10))
    done
    touch /tmp/enough
    wait $writer || fail "the writer ended with $?: $(cat /tmp/ledger)"
    said=$(ledger check "$disk" /dev/shm/ledger 2>&1) || fail "$said"
    contains "the ledger of $uri" "$said" " 0 lost" "wrong: 0"
    echo "$uri: $said"
    fabrix detach one
    wait_for 10 has_no_size "$disk"
done

# The target is away for longer than the driver waits before it says `Possible stuck request`, 30 s: who reads waits and
# goes on, and the driver does not give the connection up.
disk=$(fabrix attach nvme+tcp://$ADDRESS:$PORT/$NQN --as nbd --name one)
target_goes
reader_waits
sleep 35
target_starts
wait $reader || fail "a read did not survive a target that was away"

# By force, with the target gone and a reader waiting for it: it is over at once.
target_goes
users_hang "$disk"
fabrix detach --force one
users_are_told
wait_for 10 has_no_size "$disk"

# The first choice where the driver is, and no ublk; a disk of this machine that grows; one that is read-only.
truncate -s 16M /mnt/local
disk=$(fabrix attach file:/mnt/local --name local)
contains "what auto chose" "$disk" /dev/nbd
truncate -s 32M /mnt/local
fabrix resize local
is "the size then" "$(sectors "$disk")" $((32 << 11))
dd if=/dev/zero of="$disk" bs=1M seek=31 count=1 oflag=direct
fabrix detach local
disk=$(fabrix attach file:/mnt/local --as nbd --read-only --name local)
is "whether it is read-only" "$(cat "/sys/block/${disk##*/}/ro")" 1
fabrix detach local

# Our process is killed: who waits is told when its name is attached again or detached, reads fail before that, and its
# name and its device are to be had again.
target_starts
disk=$(fabrix attach nvme+tcp://$ADDRESS:$PORT/$NQN --as nbd --name dead)
target_goes
users_hang "$disk"
holder_killed
fabrix detach --force dead
users_are_told
wait_for 10 has_no_size "$disk"
disk=$(fabrix attach ram:16M --as nbd --name dead)
holder_killed
not dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct || fail "a read of a dead disk succeeded"
again=$(fabrix attach ram:16M --as nbd --name dead)
dd if="$again" of=/dev/null bs=4k count=1 iflag=direct
fabrix detach dead
wait_for 10 has_no_size "$again"
