# open-iscsi discovers us, logs in and finds every logical unit; Linux shows the sizes, limits and identities that we
# serve.
# modules: iscsi_tcp sd_mod sg crc32c_generic
# tools: iscsid iscsiadm scsi_id
# run: core
# log: Power-on or device reset occurred

# expect DISK NAME VALUE NAME VALUE ...
expect() {
    expected_of=$1
    shift
    while [ $# -gt 0 ]; do
        is "$1 of $expected_of" "$(queue $expected_of $1)" "$2"
        shift 2
    done
}

# field DISK NAME: what Linux has read of the SCSI device, without the padding.
field() {
    sed 's/ *$//' "/sys/block/${1##*/}/device/$2"
}

serve_iscsi ram:16M ram:32M,block=4096 ram:16M,ro=on "raid0:chunk=256k,(ram:8M,ram:8M)" null:3T
initiator
is "what is discovered" "$found" "$PORTAL,1 $IQN"
login
wait_for 30 has_luns 0 1 2 3 4

# In blocks of 512 bytes, whatever the disk's own.
sectors="32768 65536 32768 32768 6442450944"
number=0
for expected in $sectors; do
    d=$(lun $number)
    is "the size of LUN $number" "$(cat /sys/block/${d##*/}/size)" $expected
    is "the vendor" "$(field $d vendor)" FABRIX
    is "the model" "$(field $d model)" "$(field $(lun 0) model)"
    number=$((number + 1))
done

# Nothing that a RAM disk has answered waits in a cache.
expect $(lun 0) logical_block_size 512 physical_block_size 4096 write_cache "write through" rotational 0 \
    discard_granularity 4096
expect $(lun 1) logical_block_size 4096 physical_block_size 4096 discard_granularity 4096
# Two chunks of 256 KiB make a stripe.
expect $(lun 3) optimal_io_size 524288
for name in discard_max_bytes write_zeroes_max_bytes max_hw_sectors_kb; do
    [ $(queue $disk $name) -gt 0 ] || fail "no $name"
    echo "$name $(queue $disk $name)"
done
is "the read-only flag of LUN 0" "$(cat /sys/block/${disk##*/}/ro)" 0
read_only=$(lun 2)
is "the read-only flag of LUN 2" "$(cat /sys/block/${read_only##*/}/ro)" 1
dd if=$read_only of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null
refused dd if=/dev/zero of=$read_only bs=512 count=1 oflag=direct

# Each disk has an identity of its own, and the same when the target comes back.
identities() {
    for number in 0 1 2 3 4; do
        d=$(lun $number)
        echo "$(field $d wwid) $(scsi_id --whitelisted --page=0x83 --device=$d)"
    done
}
identities >before
is "how many identities there are" "$(sort -u before | wc -l)" 5
is "how many of udev's names there are" "$(sed 's/.* //' before | sort -u | wc -l)" 5
# Linux makes its own of vendor and serial number, udev /dev/disk/by-id/scsi-3... of the NAA, which is locally assigned.
contains "the identities" "$(head -n 1 before)" t10.FABRIX " 33"
logout
is "the sessions that are left" "$(sessions)" ""
stop
serve_iscsi ram:16M ram:32M,block=4096 ram:16M,ro=on "raid0:chunk=256k,(ram:8M,ram:8M)" null:3T
login
wait_for 30 has_luns 0 1 2 3 4
identities >after
cmp before after
logout
stop

# A disk with a volatile cache.
truncate -s 16M /dev/shm/disk
serve_iscsi file:/dev/shm/disk,direct=off
login
expect $disk write_cache "write back" fua 1
logout

# A target that nobody serves: the initiator is told so, and gives up at once.
iscsiadm -m node -T $IQN-x -p $PORTAL -o new
refused timeout 60 iscsiadm -m node -T $IQN-x -p $PORTAL --login
contains "the refusal" "$refusal" "non-retryable iSCSI login failure"
stop
