# ext4 lives on our disk: made, mounted, used, checked; trimming gives the file's space back.
# modules: nvme-tcp crc32c_generic ext4 brd,rd_nr=1,rd_size=262144
# tools: nvme mkfs.ext4 fsck.ext4 mount fstrim blkdiscard cmp
# seconds: 180
mkdir /mnt/below /mnt/ours
# Below our file is a file system that can do direct I/O and punch holes, which this kernel's tmpfs cannot.
mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt/below
serve file:/mnt/below/disk,size=96M
connect
d=$(disk_of 1)
mkfs.ext4 -q $d
mount -o discard $d /mnt/ours

# A tree is copied, renamed, partly removed, appended to and truncated, and reads back the same after a remount.
cp -r /usr/bin/fabrix /mnt/ours/program
mkdir /mnt/ours/tree
for n in $(seq 40); do
    dd if=/dev/urandom of=/mnt/ours/tree/$n bs=1k count=$((n * 3)) 2>/dev/null
done
mv /mnt/ours/tree/7 /mnt/ours/tree/seven
rm /mnt/ours/tree/1*
echo more >>/mnt/ours/tree/20
truncate -s 100 /mnt/ours/tree/30
ln /mnt/ours/tree/40 /mnt/ours/tree/forty
(cd /mnt/ours/tree && find . -type f | sort | xargs md5sum) >before
umount /mnt/ours
fsck.ext4 -fn $d
mount $d /mnt/ours
(cd /mnt/ours/tree && find . -type f | sort | xargs md5sum) >after
cmp before after
cmp /usr/bin/fabrix /mnt/ours/program

used() { du -k /mnt/below/disk | cut -f 1; }
full=$(used)
rm -r /mnt/ours/tree /mnt/ours/program
sync
fstrim -v /mnt/ours
trimmed=$(used)
[ $trimmed -lt $((full - 4096)) ] || fail "fstrim gave nothing back: $full KiB, then $trimmed"
umount /mnt/ours
dd if=/dev/urandom of=$d bs=1M count=8 oflag=direct conv=fsync 2>/dev/null
blkdiscard $d
empty=$(used)
[ $empty -lt 1024 ] || fail "blkdiscard left $empty KiB"
# What was discarded reads as zeroes, as the disk says.
dd if=/dev/zero of=zeroes bs=1M count=8 2>/dev/null
dd if=$d of=back bs=1M count=8 iflag=direct 2>/dev/null
cmp zeroes back
disconnect
stop
umount /mnt/below
