# Our host finds the kernel's target, and writes and reads its disks without one wrong byte: inside a capsule and by R2T,
# with digests, with several queues and several jobs.
# modules: nvmet nvmet-tcp null_blk,nr_devices=0 brd,rd_nr=1,rd_size=65536 configfs crc32c_generic
# run: core
null_blk
nvmet_serve /dev/nullb0 /dev/ram0

found=$(fabrix discover nvme+tcp://$ADDRESS:$NVMET_PORT)
contains "the log" "$found" "$NVMET_NQN" "$ADDRESS" "$NVMET_PORT" "nvme subsystem"
found=$(fabrix discover nvme+tcp://$ADDRESS:$NVMET_PORT -o json)
contains "the log" "$found" "\"subnqn\":\"$NVMET_NQN\"" '"subtype":"nvme subsystem"' '"trtype":"tcp"' \
    "\"traddr\":\"$ADDRESS\"" "\"trsvcid\":\"$NVMET_PORT\""

null_blk_uri=nvme+tcp://$ADDRESS:$NVMET_PORT/$NVMET_NQN/1
brd_uri=nvme+tcp://$ADDRESS:$NVMET_PORT/$NVMET_NQN/2
mixed="--rw randrw --iodepth 4 --size 16M --runtime 1s"

# 4k goes with the command; the kernel takes 16k at most that way; more must wait for an R2T.
for size in 4k 16k 64k 128k; do
    measured $null_blk_uri $mixed --bs $size
done
measured $brd_uri $mixed --bs 4k
measured $brd_uri $mixed --bs 128k
for size in 4k 64k; do
    measured $null_blk_uri $mixed --bs $size -g
    measured $null_blk_uri $mixed --bs $size -G
    measured $brd_uri $mixed --bs $size -g -G
done
measured $null_blk_uri $mixed --bs 64k -g -G -i 2 --numjobs 2
measured $brd_uri $mixed --bs 4k -i 2 --numjobs 2
nvmet_remove
