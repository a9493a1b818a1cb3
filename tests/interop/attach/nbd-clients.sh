# A disk on a port of TCP, in the hands of others: nbd-client makes /dev/nbdN of it, which fio verifies with requests of
# 4 MiB, more than the disk takes at once; nbdcopy writes and reads an image with requests of 8 MiB, nbdinfo and qemu-img
# see which parts hold something, qemu-io writes zeroes; and nobody hears of an error.
# modules: nbd,nbds_max=2
# tools: fio nbd-client nbdcopy nbdinfo qemu-img qemu-io cmp
# seconds: 240
# log: block nbd[0-9]+: (NBD_DISCONNECT|Disconnected due to user request|shutting down sockets|Receive control failed|Send disconnect failed)

here=nbd://127.0.0.1:10809
truncate -s 64M /dev/shm/disk
is "what is printed" "$(fabrix attach /dev/shm/disk,direct=off --listen nbd://127.0.0.1 --name port)" $here
refused fabrix attach ram:1M --listen nbd://0.0.0.0:10810
contains "the refusal" "$refusal" "--allow any"

echo "libnbd and QEMU"
dd if=/dev/urandom of=/dev/shm/image bs=1M count=16 2>/dev/null
nbdcopy --request-size=8388608 --connections=2 /dev/shm/image $here
nbdcopy --request-size=8388608 $here /dev/shm/back
cmp -n 16777216 /dev/shm/image /dev/shm/back
map=$(nbdinfo --map $here | tr -s ' ')
contains "the map of nbdinfo" "$map" " 0 16777216 0 data" " 16777216 50331648 3 hole,zero"
map=$(qemu-img map --output=json $here)
contains "the map of qemu-img" "$map" '"start": 16777216, "length": 50331648'
qemu-io -f raw -c 'write -P 9 1M 20M' -c 'read -P 9 1M 20M' -c 'write -z -u 4M 8M' -c 'read -P 0 4M 8M' \
    -c 'discard 0 1M' $here

echo "the kernel's client"
nbd-client 127.0.0.1 10809 /dev/nbd0 -C 2
echo 4096 >/sys/block/nbd0/queue/max_sectors_kb
fio --name=long --filename=/dev/nbd0 --size=64M --bs=4M --rw=write --iodepth=8 --ioengine=libaio --direct=1 \
    --verify=crc32c --do_verify=1 --output=/dev/null
fio --name=mixed --filename=/dev/nbd0 --size=64M --bsrange=4k-4M --rw=randwrite --iodepth=16 --ioengine=libaio \
    --direct=1 --verify=crc32c --do_verify=1 --output=/dev/null
refused fabrix detach $here
contains "the refusal" "$refusal" "in use" "connected"
nbd-client -d /dev/nbd0
wait_for 10 fabrix detach $here
