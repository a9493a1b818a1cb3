# A disk that is full or has bad blocks: Linux gets the error that it is, the rest of the disk goes on, and so does the
# connection.
# modules: nvme-tcp null_blk,nr_devices=0 configfs
# tools: nvme mount
# log: (critical space allocation|critical medium|I/O) error, dev (nvme[0-9c]+n[0-9]+|nullb0),
# log: Buffer I/O error on dev
# log: nvme[0-9c]+n[0-9]+: I/O Cmd

# The file promises 16 MiB, and there is room for 4.
mkdir /mnt/small
mount -t tmpfs -o size=4M small /mnt/small
truncate -s 16M /mnt/small/disk
null_blk
echo +512-519 >$nullb/badblocks
serve file:/mnt/small/disk,direct=off /dev/nullb0
connect
wait_for 30 has_disks 1 2
full=$(disk_of 1) bad=$(disk_of 2)

dd if=/dev/zero of=$full bs=1M count=2 oflag=direct 2>/dev/null
refused dd if=/dev/zero of=$full bs=1M count=8 seek=4 oflag=direct
contains "a full disk" "$refusal" "No space left on device"
dd if=$full of=/dev/null bs=1M count=2 iflag=direct 2>/dev/null
dd if=/dev/zero of=$full bs=1M count=1 oflag=direct 2>/dev/null

# Linux counts in 512 bytes: sectors 512 to 519 are the 64th block of 4096.
dd if=/dev/zero of=$bad bs=4096 count=64 oflag=direct 2>/dev/null
refused dd if=$bad of=/dev/null bs=4096 skip=64 count=1 iflag=direct
# This is how Linux calls an error of the medium.
contains "a bad block" "$refusal" "No data available"
refused dd if=/dev/zero of=$bad bs=4096 seek=64 count=1 oflag=direct
dd if=$bad of=/dev/null bs=4096 skip=65 count=16 iflag=direct 2>/dev/null
is "media errors" "$(nvme smart-log /dev/$ctrl | tr -d '\t ' | grep media_errors)" media_errors:2
log=$(nvme error-log /dev/$ctrl -e 3)
contains error-log "$log" "Write Fault" "Unrecovered Read Error"
controller_is live || fail "the controller is not live"
disconnect
stop
