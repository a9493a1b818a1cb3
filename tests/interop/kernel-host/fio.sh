# fio verifies with crc32c what it wrote, direct, at depths of 1 to 64, with one queue and two, with and without digests.
# modules: nvme-tcp crc32c_generic
# tools: nvme fio
# seconds: 180
serve ram:64M ram:64M,block=4096

# verified DISK DEPTH BLOCK
verified() {
    fio --name=verified --filename="$1" --direct=1 --ioengine=libaio --iodepth="$2" --bs="$3" --rw=randwrite --size=4M \
        --verify=crc32c --verify_fatal=1 --verify_backlog=64 --randrepeat=0 >fio.out 2>&1 || fail "fio: $(cat fio.out)"
    contains fio "$(cat fio.out)" "err= 0"
}

for words in "-i 1" "-i 2" "-i 2 -g" "-i 2 -g -G"; do
    # shellcheck disable=SC2086
    connect $words
    wait_for 30 has_disks 1 2
    one=$(disk_of 1) two=$(disk_of 2)
    case $words in
    "-i 1") for depth in 1 4 16 64; do verified $one $depth 4k; done ;;
    "-i 2")
        verified $one 8 128k
        verified $two 32 16k
        verified $two 4 1m
        ;;
    *) verified $one 32 4k-64k ;;
    esac
    disconnect
done
stop
