# Instructions of one I/O of the kernel's NVMe/RDMA host, both ends and the network together: at the kernel's own target
# and at ours, each with a disk in memory. Only the difference between the two targets says something.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvme-rdma nvmet-rdma brd
# tools: ip rdma nvme fio libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 900
# clock: instructions
# log: speed is unknown
# log: rxe0: .*non-flush error
rdma_up
ADDRESS=$RDMA
TRANSPORT=rdma

# counted LABEL TARGET: instructions of an I/O for each kind of load, in the files TARGET.KIND.
counted() {
    for kind in read-4k-1 read-4k-16 write-4k-1 write-4k-16 read-128k-1 write-128k-1; do
        depth=${kind##*-} rest=${kind%-*}
        direction=${rest%-*} block=${rest#*-}
        case $block in
        4k) ios=3000 ;;
        *) ios=300 ;;
        esac
        fio --name=counted --filename="$1" --direct=1 --ioengine=libaio --iodepth="$depth" --bs="$block" \
            --rw=rand"$direction" --size=48M --number_ios=$ios --randrepeat=1 --output-format=terse --terse-version=3 \
            >fio.out || fail "fio: $(cat fio.out)"
        # Milliseconds of the reads or of the writes. A millisecond is a million instructions.
        case $direction in
        read) ms=$(cut -d ';' -f 9 fio.out) ;;
        write) ms=$(cut -d ';' -f 50 fio.out) ;;
        esac
        echo $((ms * 1000 / ios)) >"$2.$kind"
    done
}

nvmet_serve /dev/ram0
nvme connect -t rdma -a $RDMA -s $NVMET_PORT -n $NVMET_NQN -i 1
wait_for 60 has_disks 1
counted "$(disk_of 1)" kernel
nvme disconnect -n $NVMET_NQN >/dev/null
nvmet_remove

serve ram:64M --listen nvme+rdma://$RDMA --allow any
connect -i 1
counted "$(disk_of 1)" ours
disconnect
stop

for file in kernel.*; do
    kind=${file#kernel.}
    kernel=$(cat "$file") ours=$(cat ours."$kind")
    echo "$kind: thousand instructions: kernel $kernel, ours $ours, ratio $((ours * 100 / kernel)) %"
done
