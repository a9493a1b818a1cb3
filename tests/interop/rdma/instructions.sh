# Instructions of one I/O of the kernel's NVMe/RDMA host, both ends and the network together: at the kernel's own target
# and at ours, each with a disk in memory. Only the difference between the two targets says something.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy nvme-rdma nvmet-rdma brd
# tools: ip rdma nvme fio libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 900
# clock: instructions
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
rdma_up
ADDRESS=$RDMA
TRANSPORT=rdma

nvmet_serve /dev/ram0
nvme connect -t rdma -a $RDMA -s $NVMET_PORT -n $NVMET_NQN -i 1
wait_for 60 has_disks 1
counted "$(disk_of 1)" kernel
nvme disconnect -n $NVMET_NQN >/dev/null
nvmet_remove

serve ram:16M --listen nvme+rdma://$RDMA --allow any
connect -i 1
counted "$(disk_of 1)" ours
disconnect
stop

counts
