# Instructions of one I/O of the kernel's iSER initiator, both ends and the network together: at the kernel's own target
# and at ours, each with a disk in memory. Only the difference between the two targets says something.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy ib_iser ib_isert iscsi_tcp sd_mod target_core_mod iscsi_target_mod configfs
# tools: ip rdma iscsid iscsiadm fio libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 900
# clock: instructions
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: Unable to (load target_core|request_module)|isert: |MODE SENSE: unimplemented page|Power-on or device reset occurred
rdma_up

# The kernel's target, with its disk of 16 MiB in memory.
PORTAL=$RDMA:3261
store=$lio/core/rd_mcp_0/disk
mkdir -p $lio_group/np/$PORTAL $store $lio_group/lun/lun_0
echo 1 >$lio_group/np/$PORTAL/iser
echo rd_pages=4096 >$store/control
echo 1 >$store/enable
ln -s $store $lio_group/lun/lun_0/disk
for attribute in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0; do
    echo ${attribute#*=} >$lio_group/attrib/${attribute%=*}
done
echo 1 >$lio_group/enable
initiator
discover -I iser
iqn=$IQN IQN=$LIO_IQN
login -I iser
counted "$disk" kernel
logout -I iser

IQN=$iqn PORTAL=$RDMA:3260
serve ram:16M --listen iser://$RDMA --allow any
discover -I iser
login -I iser
counted "$disk" ours
logout -I iser
stop
counts
