# What Linux makes of our capability fields: write cache, FUA, discard, write-zeroes, block sizes, stripes, identity.
# modules: nvme-tcp
# tools: nvme
# run: core

# expect DISK NAME VALUE NAME VALUE ...
expect() {
    expected_of=$1
    shift
    while [ $# -gt 0 ]; do
        is "$1 of $expected_of" "$(queue $expected_of $1)" "$2"
        shift 2
    done
}

serve ram:16M "raid0:chunk=256k,(ram:8M,ram:8M)" ram:16M,block=4096 null:16M,ro=on
connect
wait_for 30 has_disks 1 2 3 4
d=$(disk_of 1)
# Nothing that a RAM disk has answered waits in a cache: Linux sends no flush.
expect $d write_cache "write through" logical_block_size 512 minimum_io_size 4096 discard_granularity 512 \
    max_hw_sectors_kb 1024 write_zeroes_max_bytes 33554432 rotational 0
[ $(queue $d discard_max_bytes) -gt 0 ] || fail "no discard"
name=${d##*/}
is "the uuid" "$(cat /sys/block/$name/uuid)" "$(nvme ns-descs $d | sed -n 's/^uuid *: //p')"
is "the nguid" "$(cat /sys/block/$name/nguid | tr -d -)" "$(nvme ns-descs $d | sed -n 's/^nguid *: //p')"
# Two chunks of 256 KiB make a stripe.
expect $(disk_of 2) optimal_io_size 524288
expect $(disk_of 3) logical_block_size 4096 physical_block_size 4096 discard_granularity 4096
d=$(disk_of 4)
is "the read-only flag" "$(cat /sys/block/${d##*/}/ro)" 1
disconnect
stop

truncate -s 16M /dev/shm/disk
serve file:/dev/shm/disk,direct=off
connect
expect $(disk_of 1) write_cache "write back" fua 1
disconnect
stop
