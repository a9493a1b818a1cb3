# One disk, reserved over iSCSI and over NVMe: what Linux takes by sg_persist binds Linux's NVMe host, and the other way
# round; each lists the other's registration, and each fences the other.
# modules: iscsi_tcp sd_mod sg nvme-tcp crc32c_generic
# tools: iscsid iscsiadm sg_persist sg_turs nvme
# log: reservation conflict|(I/O|critical nexus) error, dev (sd|nvme)|Buffer I/O error|callbacks suppressed
# log: nvme[0-9cn]+: I/O Cmd.* I/O Error .sct 0x0 / sc 0x83. DNR
# log: sd [0-9:]+: (Power-on or device reset occurred|Parameters changed|\[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB))

# ends_well COMMAND...; what it printed is in $said.
ends_well() {
    said=$("$@" 2>&1) || fail "\`$*\` ended with $?: $said"
}

writes() {
    dd if=/dev/urandom of=$1 bs=4096 count=1 oflag=direct 2>/dev/null
}

reads() {
    dd if=$1 of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
}

serve ram:32M -l nvme+tcp://$ADDRESS:$PORT -l iscsi://$PORTAL
initiator
login
scsi=$disk g=$(sg $disk)
connect
nvme=$disk
writes $scsi
writes $nvme

# The initiator reserves for registrants only: the host reads, and does not write until it has registered.
ends_well sg_persist -n -o -G -S 0xa1 $g
ends_well sg_persist -n -o -R -T 5 -K 0xa1 $g
refused writes $nvme
reads $nvme
ends_well nvme resv-report $nvme --eds --output-format=normal
contains "the host's report" "$said" "rtype" "regctl"
ends_well nvme resv-register $nvme --nrkey=0xb2 --rrega=0
writes $nvme
ends_well sg_persist -n -i -k $g
contains "the keys as the initiator sees them" "$said" 0xa1 0xb2

# The host fences the initiator, with Preempt and Abort: the reservation is the host's.
ends_well nvme resv-acquire $nvme --crkey=0xb2 --prkey=0xa1 --rtype=3 --racqa=2
refused writes $scsi
reads $scsi
writes $nvme
ends_well sg_persist -n -i -r $g
contains "the reservation as the initiator sees it" "$said" 0xb2 "Write Exclusive, registrants only"

# And the other way round, with a reservation that keeps readers out too.
ends_well sg_persist -n -o -I -S 0xa1 $g
ends_well sg_persist -n -o -A -K 0xa1 -S 0xb2 -T 6 $g
refused writes $nvme
refused reads $nvme
writes $scsi
ends_well sg_persist -n -o -C -K 0xa1 $g
writes $nvme
reads $nvme

# What the host takes binds the initiator from the start.
ends_well nvme resv-register $nvme --nrkey=0xb2 --rrega=0
ends_well nvme resv-acquire $nvme --crkey=0xb2 --rtype=2 --racqa=0
refused writes $scsi
refused reads $scsi
ends_well nvme resv-release $nvme --crkey=0xb2 --rtype=2 --rrela=0
writes $scsi
disconnect
logout
stop
