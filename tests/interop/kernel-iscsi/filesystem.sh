# ext4 lives on our disk over iSCSI: made, mounted, used, checked; trimming gives the file's space back.
# modules: iscsi_tcp sd_mod crc32c_generic ext4 brd,rd_nr=1,rd_size=131072
# tools: iscsid iscsiadm mkfs.ext4 fsck.ext4 mount fstrim blkdiscard cmp
# seconds: 180
# log: Power-on or device reset occurred
mkdir /mnt/below /mnt/ours
# Below our file is a file system that can do direct I/O and punch holes, which this kernel's tmpfs cannot.
mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt/below
serve_iscsi file:/mnt/below/disk,size=64M
initiator
login
mkfs.ext4 -q $disk
mount -o discard $disk /mnt/ours

# A tree is copied, renamed, partly removed and appended to, and reads back the same after a new login.
cp -r /usr/bin/fabrix /mnt/ours/program
mkdir /mnt/ours/tree
for n in $(seq 20); do
    dd if=/dev/urandom of=/mnt/ours/tree/$n bs=1k count=$((n * 6)) 2>/dev/null
done
mv /mnt/ours/tree/7 /mnt/ours/tree/seven
rm /mnt/ours/tree/1?
echo more >>/mnt/ours/tree/20
(cd /mnt/ours/tree && find . -type f | sort | xargs md5sum) >before
umount /mnt/ours
logout
login
fsck.ext4 -fn $disk
mount $disk /mnt/ours
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
dd if=/dev/urandom of=$disk bs=1M count=4 oflag=direct conv=fsync 2>/dev/null
blkdiscard $disk
empty=$(used)
[ $empty -lt 1024 ] || fail "blkdiscard left $empty KiB"
# What was discarded reads as zeroes, as the disk says; and zeroes are written without being sent.
dd if=/dev/zero of=zeroes bs=1M count=4 2>/dev/null
dd if=$disk of=back bs=1M count=4 iflag=direct 2>/dev/null
cmp zeroes back
dd if=/dev/urandom of=$disk bs=1M count=4 oflag=direct conv=fsync 2>/dev/null
blkdiscard -z -o 1M -l 2M $disk
dd if=$disk of=back bs=1M skip=1 count=2 iflag=direct 2>/dev/null
dd if=/dev/zero of=zeroes bs=1M count=2 2>/dev/null
cmp zeroes back
logout
stop
umount /mnt/below
