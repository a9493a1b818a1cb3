# nvme-cli's I/O commands do what they say, on disks with blocks of 512 and of 4096 bytes and on one that is read-only.
# modules: nvme-tcp
# tools: nvme cmp
# run: core
serve ram:16M ram:16M,block=4096 ram:16M,ro=on
connect
wait_for 30 has_disks 1 2 3
dd if=/dev/urandom of=data bs=4096 count=4 2>/dev/null
for nsid in 1 2; do
    d=$(disk_of $nsid)
    block=$(queue $d logical_block_size)
    blocks=$((16384 / block - 1))
    contains write "$(nvme write $d -s 8 -c $blocks -z 16384 -d data 2>&1)" Success
    nvme read $d -s 8 -c $blocks -z 16384 -d back 2>/dev/null
    cmp data back
    contains compare "$(nvme compare $d -s 8 -c $blocks -z 16384 -d data 2>&1)" Success
    contains verify "$(nvme verify $d -s 8 -c $blocks 2>&1)" Success
    contains flush "$(nvme flush $d 2>&1)" success
    contains write-zeroes "$(nvme write-zeroes $d -s 8 -c $blocks 2>&1)" Success
    refused nvme compare $d -s 8 -c $blocks -z 16384 -d data
    contains "compare with zeroes" "$refusal" "Compare Failure"
    nvme read $d -s 8 -c $blocks -z 16384 -d back 2>/dev/null
    dd if=/dev/zero of=zeroes bs=16384 count=1 2>/dev/null
    cmp zeroes back
    contains dsm "$(nvme dsm $d -d -s 8 -b $blocks 2>&1)" success
    refused nvme read $d -s $((16777216 / block)) -c 0 -z $block -d back
    contains "a read past the end" "$refusal" "LBA Out of Range"
done

d=$(disk_of 3)
is "the read-only flag" "$(cat /sys/block/${d##*/}/ro)" 1
nvme read $d -s 0 -c 0 -z 512 -d back 2>/dev/null
refused dd if=data of=$d oflag=direct count=1
disconnect
stop
