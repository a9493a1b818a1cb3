# A virtual machine of QEMU finds our disk as vhost-user-blk, verifies it with fio, discards; our process is killed with
# -9 three times under a verified load, and started again: nothing is lost, and the machine sees nothing of it; it sees
# the disk grow; and it installs itself on it: another QEMU then starts from there, with its root file system on our disk,
# and finds every byte.
# modules: virtio_pci virtio_blk ext4 crc32c_generic
# tools: fio mkfs.ext4 fsck.ext4 mount fstrim blkdiscard cmp
# attached: file:disk,size=768M,inject=delay:3ms:write
# boots: 2
# seconds: 420

zeroes() {
    cmp -n "$3" -i "$2":0 "$1" /dev/zero
}

if [ -e /installed ]; then
    contains "the root" "$(grep ' / ' /proc/mounts)" /dev/vda
    echo "started from $(grep ' / ' /proc/mounts)"
    (cd / && sha256sum -c /sums)
    fstrim -v /
    dd if=/dev/urandom of=/more bs=1M count=8 conv=fsync
    before=$(sha256sum </more)
    echo 3 >/proc/sys/vm/drop_caches
    is "what was written" "$(sha256sum </more)" "$before"
    exit 0
fi

disk=/dev/vda
wait_for 30 test -b $disk
is "the size" "$(blockdev --getsize64 $disk)" $((768 << 20))
is "the block" "$(queue $disk logical_block_size)" 512
is "the physical block" "$(queue $disk physical_block_size)" 4096
is "the cache" "$(queue $disk write_cache)" "write back"
[ "$(queue $disk discard_max_bytes)" -gt 0 ] || fail "Linux discards nothing"
[ "$(queue $disk write_zeroes_max_bytes)" -gt 0 ] || fail "Linux writes no zeroes"
is "the queues" "$(ls /sys/block/vda/mq | wc -l)" 2
contains "the serial number" "$(cat /sys/block/vda/serial)" FBX

fio --name=verify --filename=$disk --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bsrange=512-256k \
    --bs_unaligned=0 --size=64M --verify=crc32c --verify_fatal=1 --numjobs=1 --output=/tmp/fio.out ||
    fail "$(cat /tmp/fio.out)"
# Longer than the disk moves at once.
fio --name=long --filename=$disk --direct=1 --rw=write --bs=4M --offset=64M --size=64M --verify=crc32c \
    --verify_fatal=1 --output=/tmp/fio.out || fail "$(cat /tmp/fio.out)"
not zeroes $disk $((64 << 20)) $((8 << 20))
blkdiscard -o $((64 << 20)) -l $((4 << 20)) $disk
zeroes $disk $((64 << 20)) $((4 << 20))
blkdiscard -z -o $((68 << 20)) -l $((4 << 20)) $disk
zeroes $disk $((68 << 20)) $((4 << 20))
not zeroes $disk $((72 << 20)) 4096

# Killed while requests are in progress: the machine reconnects, and what was in progress is carried out again.
written() {
    read -r _ _ _ _ count _ </sys/block/vda/stat
    echo "$count"
}
has_written_more_than() {
    [ "$(written)" -gt "$1" ]
}
# Nothing ends: nobody is there.
stands_still() {
    before=$(written)
    sleep 0.3
    [ "$(written)" = "$before" ]
}
fio --name=killed --filename=$disk --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite --bsrange=4k-64k \
    --offset=128M --size=256M --verify=crc32c --verify_fatal=1 --output=/tmp/killed.out &
load=$!
for round in 1 2 3; do
    wait_for 60 has_written_more_than $(($(written) + 200))
    echo "@@outside kill"
    wait_for 60 stands_still
    kill -0 $load || fail "nobody writes any more in round $round"
done
wait $load || fail "$(cat /tmp/killed.out)"
echo "killed three times under a verified load"

bigger=$((832 << 20))
has_grown() {
    [ "$(blockdev --getsize64 $disk)" = $bigger ]
}
echo "@@outside grow $bigger"
wait_for 60 has_grown
dd if=/dev/urandom of=/tmp/end bs=1M count=8
dd if=/tmp/end of=$disk bs=1M seek=824 oflag=direct conv=notrunc
cmp -i $((824 << 20)):0 $disk /tmp/end
echo "the machine sees $(blockdev --getsize64 $disk) bytes"

mkfs.ext4 -q $disk
mount $disk /mnt
cp -a /usr /bin /sbin /lib /lib64 /init /interop /etc /mnt
mkdir /mnt/proc /mnt/sys /mnt/dev /mnt/tmp /mnt/run /mnt/mnt
dd if=/dev/urandom of=/mnt/data bs=1M count=32
(cd /mnt && sha256sum data usr/bin/busybox >sums)
touch /mnt/installed
sync
umount /mnt
fsck.ext4 -fn $disk
