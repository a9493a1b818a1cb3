# The steps of Pacemaker's fence_scsi by sg_persist, with two initiators: both register, one reserves for registrants
# only, and one fences the other while it writes: from then on not one of its bytes arrives, until it registers again.
# modules: iscsi_tcp sd_mod sg crc32c_generic
# tools: iscsid iscsiadm sg_persist sg_turs sg_unmap sg_write_same sg_compare_and_write cmp
# log: reservation conflict|(I/O|critical nexus) error, dev sd|Buffer I/O error|callbacks suppressed
# log: sd [0-9:]+: (Power-on or device reset occurred|Parameters changed)
# log: sd [0-9:]+: \[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB)
CONFLICT=24
FIRST_KEY=0x1a2b0000
SECOND_KEY=0x1a2b0001

# The agent's `on`: register, whatever was registered, and reserve if nobody has.
unfence() {
    ends_with 0 sg_turs $1
    ends_with 0 sg_persist -n -o -I -S $2 $1
    ends_with 0 sg_persist -n -i -r $1
    case $said in
    *"NO reservation held"*) ends_with 0 sg_persist -n -o -R -T 5 -K $2 $1 ;;
    esac
}

# What the disk says of keys and of the holder.
keys() {
    ends_with 0 sg_persist -n -i -k $1
    echo "$said" | sed -n 's/^ *\(0x[0-9a-f]*\) *$/\1/p' | sort -u | tr '\n' ' '
}

writes() {
    dd if=/dev/urandom of=$1 bs=4096 count=1 oflag=direct 2>/dev/null
}

serve_iscsi ram:32M
initiator
nodes first second
login -I first
first=$disk
login -I second
second=$disk
[ $first != $second ] || fail "there is one disk only"
is "its identity" "$(cat /sys/block/${first##*/}/device/wwid)" "$(cat /sys/block/${second##*/}/device/wwid)"
a=$(sg $first) b=$(sg $second)

unfence $a $FIRST_KEY
unfence $b $SECOND_KEY
is "the keys" "$(keys $a)" "$FIRST_KEY $SECOND_KEY "
ends_with 0 sg_persist -n -i -r $b
contains "the reservation" "$said" "$FIRST_KEY" "Write Exclusive, registrants only"
writes $first
writes $second

# The second is fenced by the first while it writes.
fabrix bench file:$second --rw randwrite --bs 4k --iodepth 16 --allow-write --runtime 60s -o json \
    >bench.json 2>bench.err &
load=$!
sleep 2
kill -0 $load || fail "the load ended by itself: $(cat bench.err)"
ends_with 0 sg_persist -n -o -A -K $FIRST_KEY -S $SECOND_KEY -T 5 $a
# The command has been answered: nothing that was sent before may still come.
dd if=$first of=before bs=1M iflag=direct 2>/dev/null
is "the keys after fencing" "$(keys $a)" "$FIRST_KEY "
if wait $load; then
    [ "$(number total_err bench.json)" -gt 0 ] || fail "the fenced node has written on: $(cat bench.json)"
fi
refused writes $second
ends_with $CONFLICT sg_unmap -f --lba=0 --num=8 $b
ends_with $CONFLICT sg_write_same --16 --ndob --lba=0 --num=8 $b
dd if=/dev/zero of=both bs=1024 count=1 2>/dev/null
ends_with $CONFLICT sg_compare_and_write --in=both --lba=0 --num=1 $b
# It may read, and ask who fenced it.
dd if=$second of=/dev/null bs=64k count=1 iflag=direct 2>/dev/null
is "the keys as the second sees them" "$(keys $b)" "$FIRST_KEY "
dd if=$first of=after bs=1M iflag=direct 2>/dev/null
cmp before after || fail "something was written by the fenced node"

# Without a registration it cannot fence back; registered again it may write, as before.
ends_with $CONFLICT sg_persist -n -o -A -K $SECOND_KEY -S $FIRST_KEY -T 5 $b
unfence $b $SECOND_KEY
writes $second
# And now the holder is fenced: the reservation goes to who did it.
ends_with 0 sg_persist -n -o -A -K $SECOND_KEY -S $FIRST_KEY -T 5 $b
ends_with 0 sg_persist -n -i -r $b
contains "the reservation" "$said" "$SECOND_KEY" "Write Exclusive, registrants only"
refused writes $first
is "the keys as the first sees them" "$(keys $a)" "$SECOND_KEY "
writes $second
ends_with 0 sg_persist -n -o -C -K $SECOND_KEY $b
writes $first
iscsiadm -m node --logoutall=all
stop
