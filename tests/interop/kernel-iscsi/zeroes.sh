# What Linux zeroes and discards on our logical units is zeroed to the last block, however long the range is, with
# blocks of 512 and of 4096 bytes: marks are written all over the disk, and afterwards every byte is read.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm blkdiscard cmp
# log: Power-on or device reset occurred
serve_iscsi ram:72M ram:72M,block=4096
initiator
login
wait_for 30 has_luns 0 1
for number in 0 1; do
    d=$(lun $number)
    # WRITE SAME(10) counts up to 65535 blocks; Linux zeroes whole physical blocks of 4096 bytes.
    block=$(queue $d logical_block_size)
    is "write_zeroes_max_bytes of $d" "$(queue $d write_zeroes_max_bytes)" $((65535 * block / 4096 * 4096))
    for how in "-z" ""; do
        mark_disk $d 0 1 31 32 33 63 64 71
        # shellcheck disable=SC2086
        blkdiscard -f $how $d
        is_zero "what \`blkdiscard $how\` leaves of $d" $d 72
    done
done
logout
stop
