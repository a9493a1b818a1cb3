# Long direct writes from large pages, many at once, over loopback: every block arrives, also where the kernel ends
# threads that receive such writes of its NVMe host.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm fio
# log: Power-on or device reset occurred
# seconds: 240
serve_iscsi ram:128M
initiator
login
for memory in malloc mmap; do
    fio --name=long --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 --bs=4M --rw=write --size=128M \
        --iomem=$memory --verify=crc32c --verify_fatal=1 >fio.out 2>&1 || fail "fio: $(cat fio.out)"
    contains fio "$(cat fio.out)" "err= 0"
    grep -E "WRITE|READ" fio.out
done
logout
stop
