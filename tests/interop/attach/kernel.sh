# `attach --as kernel` hands a disk to the kernel's own host, without nvme-cli: its device holds a file system, is listed,
# is in use while it is mounted, follows a killed target, and goes with detach.
# modules: nvme-tcp brd,rd_nr=1,rd_size=65536 ext4 crc32c_generic
# tools: mkfs.ext4 mount
# seconds: 120
# log: nvme nvme[0-9]+: (starting error recovery|queue [0-9]+ socket state)
# log: nvme nvme[0-9]+: (failed to connect socket|Failed reconnect)
# log: block nvme[0-9]+n1: no usable path
# log: nvme_fabrics: (ctrl_loss_tmo < 0 will reconnect|I/O fail on reconnect)
# log: nvme nvme[0-9]+: (queue 0: timeout request 0x[0-9a-f]+ type 4|long keepalive RTT|failed nvme_keep_alive_end_io)
export FABRIX_RUN_DIR=/tmp/run FABRIX_CONFIG_DIR=/tmp/etc
served="file:/mnt/disk,size=32M,name=kernel"
mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt
serve $served
uri=nvme+tcp://$ADDRESS:$PORT/$NQN

refused fabrix attach nvme+tcp://$ADDRESS:$PORT/nqn.2026-01.io.fabrix:other --as kernel
contains "the refusal" "$refusal" "nqn.2026-01.io.fabrix:other"
disk=$(fabrix attach $uri --as kernel --name one -i 2 -k 5 -c 1 -l -1 --persist)
[ -b "$disk" ] || fail "$disk is no block device"
# One attempt: who had a ring of io_uring before is interrupted in the first one.
is "how often the kernel has tried to connect" "$(dmesg | grep -c 'I/O fail on reconnect')" 1
refused sh -c "dmesg | grep 'failed to connect'"
is "the number of controllers" "$(ls /sys/class/nvme | wc -l)" 1
contains "the list" "$(fabrix list)" one "$disk" kernel 32M attached
refused fabrix attach $uri --as kernel --name one
contains "the refusal" "$refusal" "the name one is taken"

mkfs.ext4 -q "$disk"
mkdir /tmp/at
mount "$disk" /tmp/at
echo hello >/tmp/at/file
refused fabrix detach one
contains "the refusal" "$refusal" "in use"
kill -9 $target
wait $target || true
serve $served
sync
is "the file" "$(cat /tmp/at/file)" hello
umount /tmp/at
fabrix detach one 2>/tmp/said
contains "detach" "$(cat /tmp/said)" "comes back"
refused disk_of 1
contains "the list" "$(fabrix list)" "nothing is attached"

disk=$(fabrix attach --declared)
mount "$disk" /tmp/at
is "the file" "$(cat /tmp/at/file)" hello
umount /tmp/at
fabrix detach one --forget
refused disk_of 1
is "the number of controllers" "$(ls /sys/class/nvme | wc -l)" 0
stop
