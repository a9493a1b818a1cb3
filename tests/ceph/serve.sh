# An image over NVMe/TCP and iSCSI, and by itself: blocks verified over each, of 512 and of 4096 bytes; a striped image, a
# namespace, a clone, a snapshot that cannot be written; the same identity by every way and after a new name.
# seconds: 120
# run: core
small="--rw randrw --size 16M --runtime 1s"
measured rbd:rbd/disk $small --bs 4k --iodepth 16
measured rbd:rbd/disk,block=4096 $small --bs 128k --iodepth 4

serve_image rbd:rbd/disk
measured $nvme $small --bs 4k --iodepth 16
measured $nvme $small --bs 1M --iodepth 2
measured $iscsi $small --bs 8k --iodepth 8
uuid=$(shown uuid)
end_target

# The identity is that of the image, whatever it is called.
rbd rename rbd/disk rbd/renamed
serve_image rbd:rbd/renamed
is "the identity of the renamed image" "$(shown uuid)" "$uuid"
is "the length of a UUID" ${#uuid} 36
end_target
rbd rename rbd/renamed rbd/disk

rbd create --size 64M --stripe-unit 64K --stripe-count 4 rbd/striped
measured rbd:rbd/striped $small --bs 128k --iodepth 4
rbd namespace create rbd/tenant
rbd create --size 64M rbd/tenant/own
measured rbd:rbd/tenant/own $small --bs 4k --iodepth 4

# A snapshot keeps what was there, and a clone of it is a disk of its own.
rbd snap create rbd/striped@before
rbd snap protect rbd/striped@before
rbd export rbd/striped@before was 2>/dev/null
serve_image rbd:rbd/striped@before
ends_with 2 fabrix bench $nvme --rw write --bs 4k --number-ios 10 --allow-write
contains "writes of a snapshot" "$said" "read-only"
fabrix bench $nvme --rw read --bs 64k --number-ios 100 >/dev/null
end_target
rbd clone rbd/striped@before rbd/copy
measured rbd:rbd/copy $small --bs 4k --iodepth 4
rbd export rbd/striped@before is 2>/dev/null
cmp was is || fail "the snapshot has changed"
