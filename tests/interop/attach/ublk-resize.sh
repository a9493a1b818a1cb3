# On the newest kernel that Debian offers: a remote disk grows under a verified writer, and its /dev/ublkbN with it, also
# when another process has taken the device over; the end of the disk can be written then.
# kernel: newest
# modules: ublk_drv
# seconds: 240
# log: ublkb[0-9]
# log: clocksource: Long readout interval

export FABRIX_API=unix:/run/fabrix.sock
uri=nvme+tcp://$ADDRESS/$NQN
serve file:/dev/shm/disk,size=64M,direct=off,name=ublk --api $FABRIX_API

has_mib() {
    [ "$(cat "/sys/block/${disk##*/}/size")" = $(($1 << 11)) ]
}
# grows MIB: by an event of the target, and to its last block.
grows() {
    fabrix ctl namespace resize 1 "$1M" >/dev/null
    wait_for 30 has_mib "$1"
    dd if=/dev/urandom of=/dev/shm/end bs=1M count=1 2>/dev/null
    dd if=/dev/shm/end of="$disk" bs=1M seek=$(($1 - 1)) oflag=direct conv=notrunc 2>/dev/null
    dd if="$disk" bs=1M skip=$(($1 - 1)) iflag=direct 2>/dev/null | cmp - /dev/shm/end
    contains "list" "$(fabrix list)" "$1M"
}

uname -r
disk=$(fabrix attach $uri --as ublk --name grows)
has_mib 64 || fail "the device has another size than the disk"
ledger write "$disk" /dev/shm/ledger --seconds 20 --size 8 --seed 1 >/tmp/ledger 2>&1 &
writer=$!
grows 96
grows 160
holder_is_killed
is "the device" "$(fabrix attach $uri --name grows)" "$disk"
grows 200
wait $writer || fail "the writer ended with $?: $(cat /tmp/ledger)"
said=$(ledger check "$disk" /dev/shm/ledger 2>&1) || fail "$said"
contains "the ledger" "$said" " 0 lost" "wrong: 0"
echo "grown three times: $said"
fabrix detach grows
[ ! -e "$disk" ] || fail "the device is still there"
