# sg3-utils' commands do what they say: pages, operation codes, unmap, write same, compare and write, verify, copies,
# and the reservations of one initiator.
# modules: iscsi_tcp sd_mod sg crc32c_generic
# tools: iscsid iscsiadm cmp sg_inq sg_vpd sg_opcodes sg_luns sg_readcap sg_modes sg_rtpg sg_turs sg_sync sg_unmap
# tools: sg_get_lba_status sg_write_same sg_compare_and_write sg_verify sg_xcopy sgp_dd sg_persist
# log: Power-on or device reset occurred|reservation conflict
# What they end with.
MISCOMPARE=14
OUT_OF_RANGE=22
CONFLICT=24

# says "COMMAND..." PART...: it ends well and prints these.
says() {
    asked=$1
    shift
    # shellcheck disable=SC2086
    ends_with 0 $asked
    contains "\`$asked\`" "$said" "$@"
}

# put: other bytes on the first MiB, which are in `data`.
put() {
    dd if=/dev/urandom of=data bs=64k count=16 2>/dev/null
    dd if=data of=$disk bs=64k oflag=direct 2>/dev/null
}

# same BLOCK BLOCKS FILE: these blocks of the disk are what the file begins with.
same() {
    dd if=$disk of=back bs=512 skip=$1 count=$2 iflag=direct 2>/dev/null
    head -c $((512 * $2)) "$3" | cmp - back || fail "blocks $1 to $(($1 + $2 - 1)) are not what they should be"
}

serve_iscsi ram:16M ram:16M
initiator
login
wait_for 30 has_luns 0 1
g=$(sg $disk) other=$(sg $(lun 1))
dd if=/dev/zero of=zeroes bs=64k count=16 2>/dev/null
# It begins otherwise than what it is compared with: two random bytes are the same once in 256 times.
{ printf 1 && dd if=/dev/urandom bs=511 count=1 2>/dev/null; } >one
for n in 1 2 3 4 5 6 7 8; do cat one; done >same

# What the disk says of itself.
says "sg_inq -d $g" FABRIX "Peripheral device type: disk" "iSCSI"
says "sg_luns $g" "Lun list length = 16"
says "sg_readcap -l $g" "Number of logical blocks=32768" "Logical block length=512" "lbpme=1" "lbprz=1"
says "sg_vpd -p sv $g" "Unit serial number" "Device identification" "Block limits" "Logical block provisioning"
says "sg_vpd -p sn $g" "Unit serial number"
says "sg_vpd -p di $g" "Addressed logical unit" "Target port" "iSCSI" "$IQN"
says "sg_vpd -p ei $g" "SIMPSUP=1"
says "sg_vpd -p bl $g" "Maximum compare and write length: 128" "Maximum write same length: 0xffff" "WSNZ): 1"
says "sg_vpd -p bdc $g" "Non-rotating medium"
says "sg_vpd -p lbpv $g" "LBPU): 1" "LBPWS): 1" "LBPRZ): 1"
says "sg_modes -a $g" "Caching" "Control"
says "sg_rtpg -d $g" "active/optimized"
says "sg_turs $g"
says "sg_sync $g"
says "sg_opcodes $g" "Unmap" "Compare and write" "Persistent reserve out" "Extended copy" "Write same(16)"
says "sg_opcodes -t $g" "Abort task" "Logical unit reset"
says "sg_opcodes -o 0x42 $g" "conforming to SCSI standard"
says "sg_opcodes -o 0x04 $g" "NOT supported"

# UNMAP, and what it leaves.
put
ends_with 0 sg_unmap -f --lba=8,128 --num=16,64 $g
same 0 8 data
same 8 16 zeroes
same 128 64 zeroes
says "sg_get_lba_status --lba=8 $g" "LBA: 0x0000000000000008" " 16  deallocated"
ends_with $OUT_OF_RANGE sg_unmap -f --lba=32768 --num=1 $g

# WRITE SAME, 10 and 16, with a block, without one, and as an unmap.
put
ends_with 0 sg_write_same --10 --lba=16 --num=8 --in=one --xferlen=512 $g
same 16 8 same
ends_with 0 sg_write_same --16 --lba=64 --num=8 --in=one --xferlen=512 $g
same 64 8 same
ends_with 0 sg_write_same --16 --ndob --lba=64 --num=4 $g
same 64 4 zeroes
same 68 4 same
ends_with 0 sg_write_same --unmap --lba=16 --num=4 $g
same 16 4 zeroes
same 20 4 same
ends_with $OUT_OF_RANGE sg_write_same --16 --ndob --lba=32760 --num=16 $g

# COMPARE AND WRITE writes if and only if all is as expected.
put
{ printf 0 && head -c 4095 data; } >expected
dd if=expected of=$disk bs=4096 oflag=direct 2>/dev/null
cat expected same >both
ends_with 0 sg_compare_and_write --in=both --lba=0 --num=8 --xferlen=8192 $g
same 0 8 same
ends_with $MISCOMPARE sg_compare_and_write --in=both --lba=0 --num=8 --xferlen=8192 $g
contains "a miscompare" "$said" "byte offset: 0"
same 0 8 same
head -c 512 zeroes >half
cat one half >late
ends_with 0 sg_compare_and_write --in=late --lba=0 --num=1 $g
same 0 1 zeroes
same 1 7 same

# VERIFY against bytes of ours.
ends_with 0 sg_verify --lba=1 --count=7 --ndo=3584 --in=same $g
ends_with $MISCOMPARE sg_verify --lba=0 --count=8 --ndo=4096 --in=same $g
ends_with 0 sg_verify --16 --lba=0 --count=4096 $g

# EXTENDED COPY, inside of a disk's target.
put
ends_with 0 sg_xcopy if=$g of=$other bs=512 count=2048
dd if=$(lun 1) of=back bs=64k count=16 iflag=direct 2>/dev/null
cmp data back

# Past the block layer, in several threads, out and in.
dd if=/dev/urandom of=data bs=64k count=32 2>/dev/null
ends_with 0 sgp_dd if=data of=$g bs=512 bpt=128 thr=4 count=4096
ends_with 0 sgp_dd if=$g of=back bs=512 bpt=256 thr=4 count=4096
cmp data back

# Persistent reservations of one initiator; two of them are in `fence`.
says "sg_persist -c $g" "Write Exclusive, registrants only" "Persist Through Power Loss Capable"
says "sg_persist -k $g" "NO registered reservation keys"
ends_with $CONFLICT sg_persist -o -R -T 1 -K 0x1 $g
ends_with 0 sg_persist -o -G -S 0x1234 $g
says "sg_persist -k $g" 0x1234
ends_with $CONFLICT sg_persist -o -G -K 0x9 -S 0x5 $g
ends_with 0 sg_persist -o -R -T 3 -K 0x1234 $g
says "sg_persist -r $g" "Exclusive Access" 0x1234
says "sg_persist -s $g" "Exclusive Access" "$INITIATOR"
ends_with 0 sg_persist -o -L -T 3 -K 0x1234 $g
says "sg_persist -r $g" "NO reservation held"
ends_with 0 sg_persist -o -C -K 0x1234 $g
says "sg_persist -k $g" "NO registered reservation keys"
logout
stop
