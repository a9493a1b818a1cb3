# What Linux zeroes and discards on our disk is zeroed to the last block, however long the range is, with blocks of 512
# and of 4096 bytes: marks are written all over the disk, and afterwards every byte is read.
# modules: nvme-tcp
# tools: nvme blkdiscard cmp
serve ram:96M ram:96M,block=4096
connect
wait_for 30 has_disks 1 2
for nsid in 1 2; do
    d=$(disk_of $nsid)
    # WZSL is in bytes: Linux makes blocks of it, which a command counts in 16 bits.
    is "write_zeroes_max_bytes of $d" "$(queue $d write_zeroes_max_bytes)" 33554432
    for how in "-z" ""; do
        mark_disk $d 0 1 31 32 33 63 64 95
        # shellcheck disable=SC2086
        blkdiscard -f $how $d
        is_zero "what \`blkdiscard $how\` leaves of $d" $d 96
    done
done
disconnect
stop
