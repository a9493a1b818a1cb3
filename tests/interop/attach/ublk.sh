# Remote disks as block devices by ublk: limits, a file system and its discards, verified writers that see nothing of a
# target or an attaching process killed with -9, and ends that are refused, polite, by force, and after a death, of which
# no user hangs.
# kernel: newer
# modules: ublk_drv ext4 crc32c_generic
# tools: mkfs.ext4 fsck.ext4 mount fstrim blkdiscard
# seconds: 300
# log: ublkb[0-9]|callbacks suppressed|attempt to access beyond end of device
# log: clocksource: Long readout interval

NVME=nvme+tcp://$ADDRESS/$NQN
ISCSI=iscsi://$PORTAL/$IQN/0
served="file:/dev/shm/disk,size=64M,name=ublk"
both() {
    serve $served -l nvme+tcp://$ADDRESS:$PORT -l iscsi://$PORTAL
}
# attach URI WORD...: the device is $disk.
attach() {
    disk=$(fabrix attach "$@" 2>/tmp/attach.err) || fail "\`fabrix attach $*\` ended with $?: $(cat /tmp/attach.err)"
}
has_more_than() {
    [ "$(wc -l </dev/shm/ledger)" -gt "$1" ]
}
goes_on() {
    lines=$(wc -l </dev/shm/ledger)
    wait_for 60 has_more_than $((lines + 20))
}

both
attach $NVME --as ublk --name first
is "the device" "$disk" /dev/ublkb0
is "what it says" "$(cat /tmp/attach.err)" ""
is "bytes" "$(($(cat "/sys/block/${disk##*/}/size") * 512))" 67108864
is "the block" "$(queue $disk logical_block_size)" 512
is "the cache" "$(queue $disk write_cache)" "write back"
is "FUA" "$(queue $disk fua)" 1
[ "$(queue $disk discard_max_bytes)" -gt 0 ] || fail "no discard"
[ "$(queue $disk write_zeroes_max_bytes)" -gt 0 ] || fail "no write zeroes"
contains "list" "$(fabrix list)" ublk "$disk" attached
fabrix detach first
[ ! -e "$disk" ] || fail "the device is still there"
attach $NVME --as ublk --read-only
is "ro" "$(cat "/sys/block/${disk##*/}/ro")" 1
refused dd if=/dev/zero of=$disk bs=4096 count=1 oflag=direct
fabrix detach $disk
# A disk without a cache is asked for no flush. ublk is the first choice where it is.
attach ram:16M
is "what auto chose" "$disk" /dev/ublkb0
is "the cache of RAM" "$(queue $disk write_cache)" "write through"
fabrix detach $disk
echo "limits: right"

# A file system, over iSCSI.
attach $ISCSI --as ublk --name files
mkfs.ext4 -q $disk
mount $disk /mnt
dd if=/dev/urandom of=/dev/shm/source bs=65536 count=160 2>/dev/null
cp /dev/shm/source /mnt/copy
sync
echo 3 >/proc/sys/vm/drop_caches
cmp /dev/shm/source /mnt/copy || fail "the copy differs"
refused fabrix detach files
contains "detach of a mounted disk" "$refusal" "is in use" "/mnt"
rm /mnt/copy
sync
fstrim /mnt
umount /mnt
fsck.ext4 -fn $disk >/tmp/fsck 2>&1 || fail "the file system is broken: $(cat /tmp/fsck)"
[ "$(du -k /dev/shm/disk | cut -f 1)" -lt 8192 ] || fail "trimming gave nothing back: $(du -k /dev/shm/disk)"
blkdiscard -z $disk
cmp -n 1048576 /dev/zero $disk || fail "zeroes are no zeroes"
fabrix detach files
echo "a file system: right"

# Writers; the target dies, then the process that serves the device.
attach $NVME --as ublk --name writers
device=$disk
ledger write $disk /dev/shm/ledger --seconds 90 --size 8 --seed 1 >/tmp/ledger 2>&1 &
writer=$!
wait_for 30 has_more_than 50
kill -9 $target
wait $target || true
both
goes_on
for round in 1 2; do
    holder_is_killed
    attach $NVME --name writers
    is "the device after kill $round" "$disk" $device
    goes_on
done
# Without a name it is found by its disk.
holder_is_killed
attach $NVME
is "the device" "$disk" $device
contains "list" "$(fabrix list)" writers
goes_on
wait $writer || fail "the writer ended with $?: $(cat /tmp/ledger)"
said=$(ledger check $disk /dev/shm/ledger 2>&1) || fail "$said"
contains "the ledger" "$said" " 0 lost" " 0 old" "wrong: 0"
echo "killed and taken over: $said"

# Its process dies and nobody takes over: another disk does not get its place, and who waits is told when it is detached.
holder_is_killed
refused fabrix attach ram:16M --name writers
contains "another disk under that name" "$refusal" $device "detach writers"
users_hang $disk
fabrix detach writers
users_are_told
[ ! -e "$disk" ] || fail "the device is still there"
echo "died and detached: right"

# By force, with the target gone and somebody waiting.
attach $NVME --as ublk --name gone
mkfs.ext4 -q $disk
mount $disk /mnt
kill -9 $target
wait $target || true
users_hang $disk
refused fabrix detach gone
fabrix detach gone --force
users_are_told
umount /mnt
[ ! -e "$disk" ] || fail "the device is still there"
# The same when the process that serves it has died, too.
both
attach $NVME --as ublk --name gone
kill -9 $target
wait $target || true
holder_is_killed
users_hang $disk
fabrix detach gone --force
users_are_told
[ ! -e "$disk" ] || fail "the device is still there"
contains "what is still attached" "$(fabrix list)" "nothing is attached"
echo "by force: right"
