# QEMU's own iSCSI driver, as virtual machines use it: an image is written to our disk, read back and compared, with
# digests and without; qemu-io writes, discards, writes zeroes and verifies patterns.
# tools: qemu-img qemu-io block-iscsi.so cmp
# seconds: 240
export QEMU_MODULE_DIR=/usr/bin
serve_iscsi ram:32M ram:16M,block=4096 ram:16M,ro=on
uri=iscsi://$PORTAL/$IQN

contains "qemu-img info" "$(qemu-img info -f raw $uri/0)" "virtual size: 32 MiB"
dd if=/dev/urandom of=image bs=1M count=8 2>/dev/null
truncate -s 32M image
qemu-img convert -n -f raw -O raw image $uri/0
contains "qemu-img compare" "$(qemu-img compare -f raw -F raw image $uri/0)" "Images are identical."
qemu-img convert -f raw -O raw $uri/0 back
cmp image back
# What was never written is not read: the disk says where it holds something.
qemu-img map -f raw --output=json $uri/0 >map
contains "the map" "$(cat map)" '"zero": true'

# With blocks of 4096 bytes and pieces below 32 KiB: QEMU 7.2 fails an assertion of its own when it is to read more of
# such a disk, because it asks for the status of 2147483136 bytes, which are no whole blocks.
for digest in none crc32c; do
    io() {
        opened="driver=iscsi,transport=tcp,portal=$PORTAL,target=$IQN,lun=$lun,header-digest=$digest"
        qemu-io -c "open -o $opened" "$@" >io 2>&1
    }
    for lun in 0 1; do
        [ $lun = 0 ] && piece=256k || piece=16k
        io -c "write -P 0x5a 0 1M" -c "write -P 0xa5 4096 64k" -c "read -P 0xa5 4096 16k" \
            -c "read -P 0x5a 128k $piece" -c "write -z 64k 64k" -c "read -P 0 96k 16k" \
            -c "discard 512k 256k" -c "read -P 0 512k $piece" \
            -c "aio_write -P 0x11 1M 2M" -c aio_flush -c "read -P 0x11 1M $piece" -c flush || fail "qemu-io: $(cat io)"
        refused grep -i -e "failed" -e "error" -e "mismatch" io
    done
done

# A format of QEMU's own on our disk.
qemu-img create -q -f qcow2 $uri/0 16M
qemu-io -f qcow2 -c "write -P 7 1M 64k" $uri/0 >io
qemu-img check -f qcow2 $uri/0 >io || fail "qemu-img check: $(cat io)"
qemu-io -f qcow2 -c "read -P 7 1M 64k" $uri/0 >io
refused grep -i "verification failed" io

refused qemu-io -f raw -c "write 0 4096" $uri/2
refused qemu-img info -f raw $uri/7
refused qemu-img info -f raw iscsi://$PORTAL/$IQN-x/0
stop
