# On the newest kernel that Debian offers: a block device and a file of this machine as /dev/ublkbN, whose data nobody
# copies, verified with fio; memory that the disk cannot use is copied; the attaching process is killed with -9 under a
# verified writer, and the device taken over; by force it goes under load. A remote disk is copied as ever.
# kernel: newest
# modules: ublk_drv null_blk,nr_devices=0 loop brd,rd_nr=1,rd_size=98304 ext4 configfs
# tools: fio mkfs.ext4 mount
# seconds: 400
# log: ublkb[0-9]|callbacks suppressed
# log: clocksource: Long readout interval

# number_of KEY: the first number of that name in the list of the only attachment; "null" is none.
number_of() {
    fabrix list -o json | grep -o "\"$1\": *[0-9a-z]*" | head -n 1 | sed 's/.*: *//'
}
# requests KIND: how many reads or writes the only attachment has carried out.
requests() {
    fabrix list -o json | grep -o "\"$1\": *{[^}]*}" | grep -o '"requests": *[0-9]*' | sed 's/.*: *//'
}
# verified_by_fio WORD...
verified_by_fio() {
    fio --name=verify --filename="$disk" --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 \
        --output=/tmp/fio.out "$@" || fail "$(cat /tmp/fio.out)"
}
# all_uncopied [COPIED]: of the requests that move data nobody has copied any, but for the first COPIED. (The kernel may
# join two neighbours to one request, so their number is not fixed.)
all_uncopied() {
    uncopied=$(number_of zero_copy)
    [ "$uncopied" -gt 100 ] || fail "only $uncopied requests went without a copy"
    is "requests without a copy" "$uncopied" $(($(moved) - ${1:-0}))
}
moved() {
    echo $(($(requests read) + $(requests write)))
}
has_more_than() {
    [ "$(wc -l </dev/shm/ledger)" -gt "$1" ]
}
goes_on() {
    lines=$(wc -l </dev/shm/ledger)
    wait_for 60 has_more_than $((lines + 20))
}
uname -r

# A block device.
null_blk
disk=$(fabrix attach /dev/nullb0 --as ublk --name block)
verified_by_fio --iodepth=16 --rw=randwrite --bsrange=4k-256k --size=48M
verified_by_fio --iodepth=4 --rw=write --bs=4M --size=48M
all_uncopied
echo "a block device: $uncopied requests, none copied"
fabrix detach block

# Buffers that begin four bytes behind a page: ublk takes them, the loop driver does not.
truncate -s 32M /dev/shm/image
losetup /dev/loop0 /dev/shm/image
disk=$(fabrix attach /dev/loop0 --as ublk --name loop)
uncopied=$(number_of zero_copy)
verified_by_fio --iodepth=8 --rw=randwrite --bs=64k --size=16M --mem_align=4
is "requests without a copy, of memory that the disk cannot use" "$(number_of zero_copy)" "$uncopied"
copied=$(($(moved) - uncopied))
verified_by_fio --iodepth=8 --rw=randwrite --bs=64k --size=16M
all_uncopied $copied
fabrix detach loop
echo "memory that the disk cannot use: copied"

# A file. Its process is killed, and the device taken over.
mkfs.ext4 -q /dev/ram0
mount /dev/ram0 /mnt
uri=file:/mnt/disk,size=64M
disk=$(fabrix attach $uri --as ublk --name file)
verified_by_fio --iodepth=16 --rw=randwrite --bsrange=4k-256k --size=32M
all_uncopied
ledger write "$disk" /dev/shm/ledger --seconds 40 --size 8 --seed 1 >/tmp/ledger 2>&1 &
writer=$!
wait_for 30 has_more_than 50
for round in 1 2 3; do
    holder_is_killed
    is "the device after kill $round" "$(fabrix attach $uri --name file)" "$disk"
    goes_on
    [ "$(number_of zero_copy)" -gt 0 ] || fail "after kill $round everything is copied"
done
wait $writer || fail "the writer ended with $?: $(cat /tmp/ledger)"
said=$(ledger check "$disk" /dev/shm/ledger 2>&1) || fail "$said"
contains "the ledger" "$said" " 0 lost" " 0 old" "wrong: 0"
all_uncopied
echo "killed and taken over: $said"

# By force, under load: who uses it is told, and what is in progress ends.
fio --name=load --filename="$disk" --direct=1 --ioengine=libaio --iodepth=32 --rw=randrw --bs=64k --size=32M \
    --time_based --runtime=60 --output=/tmp/load.out 2>/dev/null &
load=$!
before=$(number_of zero_copy)
is_loaded() {
    [ "$(number_of zero_copy)" -gt $((before + 100)) ]
}
wait_for 30 is_loaded
fabrix detach file --force
! wait $load || fail "the load heard of no error"
wait_for 30 nobody_hangs
[ ! -e "$disk" ] || fail "the device is still there"
contains "what is still attached" "$(fabrix list)" "nothing is attached"
echo "by force: right"

# What has no place where its data could lie without a copy.
serve file:/mnt/disk
disk=$(fabrix attach nvme+tcp://$ADDRESS/$NQN --as ublk --name remote)
verified_by_fio --iodepth=8 --rw=randwrite --bs=16k --size=4M
is "requests without a copy, of a remote disk" "$(number_of zero_copy)" null
fabrix detach remote
disk=$(fabrix attach ram:16M --as ublk --name ram)
is "requests without a copy, of RAM" "$(number_of zero_copy)" null
fabrix detach ram
echo "what is copied: copied"
