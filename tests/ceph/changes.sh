# The size of a served image follows `rbd resize`, and hosts see it; `fabrix ctl namespace resize` resizes the image. A host
# that writes behind the new end of a smaller image is refused. Snapshots under verified load disturb nobody, and stand still.
# seconds: 120
# run: core
# tools: iscsi-readcapacity16
rbd create --size 64M rbd/changes
prefix=$(rbd info rbd/changes | sed -n 's/.*block_name_prefix: //p')
serve_image rbd:rbd/changes
size_is() {
    [ "$(shown size_bytes)" = "$1" ]
}
# here PLACE WORD...: the program with attachments of this place. A place has a disk once.
here() {
    place=$1
    shift
    FABRIX_RUN_DIR="$PWD"/$place FABRIX_CONFIG_DIR="$PWD"/$place/config fabrix "$@"
}
detached() {
    here one detach disk --force || true
    here two detach disk --force || true
}
trap 'detached >/dev/null 2>&1; end_target' EXIT
# sees PLACE BYTES
sees() {
    here "$1" list -o json | grep -q "\"size_bytes\": *$2[,}]"
}
# The attached disks, and an initiator that asks.
hosts_see() {
    sees one "$1" && sees two "$1" && [ "$(iscsi-readcapacity16 -s "$iscsi")" = "$1" ]
}
# has_object PATTERN: of the last two hexadecimal digits of its number. An object has 4 MiB.
has_object() {
    rados -p rbd ls | grep -q "^$prefix\.0*$1\$"
}
is "the size" "$(shown size_bytes)" 67108864
here one attach "$nvme" --as nbd-socket --name disk >/dev/null
here two attach "$iscsi" --as nbd-socket --name disk -k 200ms >/dev/null

rbd resize --size 128M rbd/changes 2>/dev/null
wait_for 5 size_is 134217728
wait_for 5 hosts_see 134217728
fabrix ctl --api unix:"$PWD"/api namespace resize 1 256M >/dev/null
is "the size" "$(shown size_bytes)" 268435456
wait_for 5 hosts_see 268435456
rbd info rbd/changes | grep -q 'size 256 MiB' || fail "Ceph does not know of the new size"

# One snapshot after the other, as long as the load lasts.
bench_begins "$nvme" --bs 16k --iodepth 8 --runtime 3s
wait_for 20 has_object "[0-9a-f]*"
rbd snap create rbd/changes@first 2>/dev/null
bench_goes_on
rbd export rbd/changes@first was 2>/dev/null
while kill -0 $bench 2>/dev/null; do
    rbd snap create rbd/changes@next 2>/dev/null
    rbd snap rm rbd/changes@next 2>/dev/null
done
bench_ends 0
rbd export rbd/changes@first is 2>/dev/null
cmp was is || fail "the snapshot has changed"
rbd snap rm rbd/changes@first 2>/dev/null

# A host that knows the old size writes all over the disk.
for disk in $nvme $iscsi; do
    fabrix bench "$disk" --rw randwrite --bs 64k --size 256M --iodepth 4 --runtime 60s --allow-write >writer.out 2>&1 &
    writer=$!
    wait_for 20 has_object "[1-3][0-9a-f]"
    rbd resize --size 64M --allow-shrink rbd/changes 2>/dev/null
    status=0
    wait $writer || status=$?
    is "what the writer ended with" $status 1
    contains "the writer" "$(cat writer.out)" "OutOfRange"
    wait_for 5 hosts_see 67108864
    rbd resize --size 256M rbd/changes 2>/dev/null
    wait_for 5 hosts_see 268435456
done
