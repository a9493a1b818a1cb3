# Disks of this machine and of our target, over NVMe/TCP and over iSCSI, as /dev/loopN over FUSE: size, blocks, cache,
# access, holes and direct I/O as the disk has them; ext4 made, mounted, trimmed, checked; a target that dies under a
# mounted file system, for a while and for good; detached politely, by force, and after a kill -9, of which no user hangs.
# kernel: own newer
# modules: loop fuse ext4 crc32c_generic
# tools: mkfs.ext4 fsck.ext4 mount fstrim blkdiscard
# seconds: 300
# log: (Buffer )?I/O error(,| on) dev(ice)? loop[0-9]
# log: (EXT4-fs|JBD2|Aborting journal).* loop[0-9]
# log: EXT4-fs \(loop[0-9]\)
# log: callbacks suppressed
# log: clocksource: Long readout interval

NVME=nvme+tcp://$ADDRESS/$NQN
ISCSI=iscsi://$PORTAL/$IQN/0
both() {
    serve file:/dev/shm/disk,size=64M,direct=off,name=loop -l nvme+tcp://$ADDRESS:$PORT -l iscsi://$PORTAL
}
target_goes() {
    kill -9 $target
    wait $target || true
}
# attach URI WORD...: the device is $disk.
attach() {
    disk=$(fabrix attach "$@" 2>/tmp/attach.err) || fail "\`fabrix attach $*\` ended with $?: $(cat /tmp/attach.err)"
}
# shows FILE EXPECTED: what the kernel says of $disk.
shows() {
    is "$1 of $disk" "$(cat "/sys/block/${disk##*/}/$1")" "$2"
}
is_free() {
    [ ! -e "/sys/block/${disk##*/}/loop" ]
}

uname -r
attach ram:64M
is "the device" "$disk" /dev/loop0
# Not that it is cached twice, either.
is "what attach says" "$(cat /tmp/attach.err)" ""
shows size $((64 << 11))
shows ro 0
shows loop/dio 1
shows queue/logical_block_size 512
shows queue/write_cache "write back"
shows queue/rotational 0
for limit in discard_max_bytes discard_granularity write_zeroes_max_bytes; do
    [ "$(queue $disk $limit)" -gt 0 ] || fail "$limit of $disk is 0"
done
contains "list" "$(fabrix list)" "$disk" fuse 64M attached
dd if=/dev/urandom of=/dev/shm/source bs=1M count=1 2>/dev/null
dd if=/dev/shm/source of=$disk bs=1M seek=63 oflag=direct 2>/dev/null
dd if=$disk bs=1M skip=63 iflag=direct 2>/dev/null | cmp - /dev/shm/source || fail "the end of the disk differs"
blkdiscard -o $((63 << 20)) -l $((1 << 20)) $disk
dd if=$disk bs=1M skip=63 iflag=direct 2>/dev/null | cmp -n $((1 << 20)) - /dev/zero || fail "a hole is no zeroes"
fabrix detach $disk
is_free || fail "$disk has a file under it still"
attach ram:64M,block=4096 --as fuse
shows size $((64 << 11))
shows queue/logical_block_size 4096
fabrix detach $disk
attach ram:16M --as fuse --read-only
shows size $((16 << 11))
shows ro 1
refused dd if=/dev/zero of=$disk bs=4096 count=1 oflag=direct
fabrix detach $disk
# A disk of this machine grows, and its device with it.
truncate -s 16M /dev/shm/local
attach file:/dev/shm/local,direct=off --as fuse --name local
shows size $((16 << 11))
truncate -s 32M /dev/shm/local
fabrix resize local
shows size $((32 << 11))
dd if=/dev/shm/source of=$disk bs=1M seek=31 conv=fsync 2>/dev/null
tail -c 1048576 /dev/shm/local | cmp - /dev/shm/source || fail "the new end of the disk differs"
fabrix detach local
rm /dev/shm/local
echo "limits: right"

both
dd if=/dev/urandom of=/dev/shm/source bs=64k count=160 2>/dev/null
for uri in $NVME $ISCSI; do
    attach $uri --as fuse --name files
    shows size $((64 << 11))
    mkfs.ext4 -q $disk
    mount $disk /mnt
    cp /dev/shm/source /mnt/copy
    sync
    refused fabrix detach files
    contains "detach of a mounted disk" "$refusal" "is in use" "/mnt"
    # The target dies while somebody writes, and comes back.
    target_goes
    cp /dev/shm/source /mnt/second
    sync &
    writer=$!
    wait_for 30 hangs $writer
    both
    wait $writer || fail "a sync did not survive a target that was away"
    echo 3 >/proc/sys/vm/drop_caches
    cmp /dev/shm/source /mnt/copy || fail "the copy differs"
    cmp /dev/shm/source /mnt/second || fail "the second copy differs"
    rm /mnt/copy /mnt/second
    sync
    fstrim /mnt
    umount /mnt
    fsck.ext4 -fn $disk >/tmp/fsck 2>&1 || fail "the file system is broken: $(cat /tmp/fsck)"
    [ "$(du -k /dev/shm/disk | cut -f 1)" -lt 8192 ] || fail "trimming gave nothing back: $(du -k /dev/shm/disk)"
    fabrix detach files
    is_free || fail "$disk has a file under it still"
done
echo "file systems: right"

# By force: the target is gone for good, under a mounted file system of which somebody waits.
attach $NVME --as fuse --name gone
mkfs.ext4 -q $disk
mount $disk /mnt
echo hello >/mnt/file
sync
target_goes
users_hang $disk
refused fabrix detach gone
fabrix detach gone --force
users_are_told
umount /mnt
wait_for 30 is_free
contains "what is still attached" "$(fabrix list)" "nothing is attached"
echo "by force: right"

# Our process is killed, and whoever waited for its disk is told at once. The next one of that name clears away what is
# left, and what was synced is there.
both
attach $NVME --as fuse --name dead
fsck.ext4 -fp $disk >/tmp/fsck 2>&1 || [ $? = 1 ] || fail "the file system is broken: $(cat /tmp/fsck)"
mount $disk /mnt
is "the file" "$(cat /mnt/file)" hello
target_goes
users_hang $disk
holder_is_killed
users_are_told
refused dd if=$disk of=/dev/null bs=4k count=1 iflag=direct
umount /mnt
both
attach $NVME --as fuse --name dead
shows size $((64 << 11))
fsck.ext4 -fp $disk >/tmp/fsck 2>&1 || [ $? = 1 ] || fail "the file system is broken: $(cat /tmp/fsck)"
mount $disk /mnt
is "the file" "$(cat /mnt/file)" hello
umount /mnt
fabrix detach dead
is_free || fail "$disk has a file under it still"
stop
echo "killed: right"
