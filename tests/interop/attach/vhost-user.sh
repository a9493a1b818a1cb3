# A virtual machine of QEMU finds our disk as vhost-user-blk, verifies it with fio, discards, and installs itself on it;
# another QEMU then starts from there, with its root file system on our disk, and finds every byte.
# modules: virtio_pci virtio_blk ext4 crc32c_generic
# tools: fio mkfs.ext4 fsck.ext4 mount fstrim blkdiscard cmp
# attached: file:disk,size=768M
# boots: 2
# seconds: 240

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
