# fio verifies with crc32c what it wrote, direct, at depths of 1 to 64, with one queue and two, with and without digests.
# modules: nvme-tcp crc32c_generic
# tools: nvme fio
# seconds: 180
serve ram:64M ram:64M,block=4096

for words in "-i 1" "-i 2" "-i 2 -g" "-i 2 -g -G"; do
    # shellcheck disable=SC2086
    connect $words
    wait_for 30 has_disks 1 2
    one=$(disk_of 1) two=$(disk_of 2)
    case $words in
    "-i 1") for depth in 1 4 16 64; do fio_verifies $one $depth 4k; done ;;
    "-i 2")
        fio_verifies $one 8 128k
        fio_verifies $two 32 16k
        fio_verifies $two 4 1m
        ;;
    *) fio_verifies $one 32 4k-64k ;;
    esac
    disconnect
done
stop
