# Compare-and-write over NVMe and over iSCSI: a match writes, a mismatch changes nothing, and of several hosts that count at
# once none loses a number. Zeroes are zeroes at any alignment, and a discard of a whole object gives its space back. Ceph's
# own tools see the same bytes.
# seconds: 120
# run: core
rbd create --size 16M rbd/atomic
serve_image rbd:rbd/atomic

# told WORD...: a host sends these requests over $disk, and they succeed.
told() {
    is "the answer to $* over $disk" "$(requests "$@" "$disk" 2>&1)" done
}

# What Ceph itself has, in the file `exported`.
export_image() {
    rm -f exported
    rbd export rbd/atomic exported 2>/dev/null
}

# in_ceph LBA BLOCKS OCTAL: Ceph itself has nothing but this byte in these blocks.
in_ceph() {
    export_image
    others=$(dd if=exported bs=512 skip="$1" count="$2" 2>/dev/null | tr -d "\\$3" | wc -c)
    is "the number of other bytes in $2 blocks from $1 on" "$others" 0
}

# swaps LBA BLOCKS: compare-and-write there. The last block of the second one differs.
swaps() {
    last=$(($1 + $2 - 1))
    told fill $(($1 - 2)) $(($2 + 4)) 1
    is "a match of $2 blocks at $1" "$(requests swap "$1" "$2" 1 2 "$disk")" written
    told holds "$1" "$2" 2
    told fill $last 1 3
    is "a mismatch of $2 blocks at $1" "$(requests swap "$1" "$2" 2 4 "$disk")" differs
    [ "$2" = 1 ] || told holds "$1" $(($2 - 1)) 2
    told holds $last 1 3
    told holds $(($1 - 2)) 2 1
    told holds $((last + 1)) 2 1
    in_ceph $last 1 003
}

# An object of Ceph has 8192 blocks.
for disk in $nvme $iscsi; do
    swaps 100 1
    swaps 200 8
    swaps 8188 8
done

# Four hosts count in one block at once, and each succeeds fifty times.
told fill 0 1 0
missed=$(requests count 0 50 "$nvme" "$iscsi" "$nvme" "$iscsi")
[ "$missed" -gt 0 ] || fail "the hosts never met, so nothing was shown"
export_image
is "the number in the block" "$(od -A n -t u8 -N 8 exported | tr -d ' ')" 200

# zeroes LBA BLOCKS: there is nothing else there then, and the neighbours stay.
zeroes() {
    told fill $(($1 - 1)) $(($2 + 2)) 90
    told zero "$1" "$2"
    told holds "$1" "$2" 0
    told holds $(($1 - 1)) 1 90
    told holds $(($1 + $2)) 1 90
    in_ceph "$1" "$2" 000
}

objects() {
    rados -p rbd ls | grep -c "^$prefix"
}

prefix=$(rbd info rbd/atomic | sed -n 's/.*block_name_prefix: //p')
for disk in $nvme $iscsi; do
    zeroes 301 1
    zeroes 1001 333
    zeroes 8191 2
    zeroes 8001 8192
    told fill 0 24576 77
    is "the objects of 12 MiB" "$(objects)" 3
    told discard 8192 8192
    is "the objects after a discard of one" "$(objects)" 2
    told holds 0 8192 77
    told holds 16384 8192 77
done
