# A reservation that is to outlive a loss of power is in the metadata of the image. After a kill of the target it holds at
# another one with another state folder, over both protocols; others are gone. What its holder ends stays ended.
# seconds: 120
# run: core

# The target ends as with a loss of power. Another one serves the image.
restarted() {
    kill -9 $target
    wait $target || true
    serve_image rbd:rbd/reserved --state "$PWD/$1"
}

# tries STATUS: a write of a host over NVMe, which is not registered, ends the program so.
tries() {
    ends_with "$1" fabrix bench "$nvme" --rw write --bs 4k --number-ios 1 --allow-write
}

# Without Ceph's exclusive lock: that of a killed client is broken by Ceph only after 30 s.
rbd create --size 16M --image-feature layering rbd/reserved
serve_image rbd:rbd/reserved --state "$PWD"/one
is "the registration" "$(reserve "$iscsi" holder register 5)" good
is "the reservation" "$(reserve "$iscsi" holder reserve 5)" good
[ -n "$(rbd image-meta get rbd/reserved fabrix.reservations)" ] || fail "the image has no reservations in its metadata"

restarted another
is "the keys after a kill" "$(reserve "$iscsi" other keys)" 5
is "a write of another initiator" "$(reserve "$iscsi" other write)" conflict
tries 1
contains "a write over NVMe" "$said" "the write of 8 blocks at LBA 0 was answered"
is "a write of the holder" "$(reserve "$iscsi" holder write)" good
is "the end of the reservation" "$(reserve "$iscsi" holder clear 5)" good
is "a write of another initiator" "$(reserve "$iscsi" other write)" good

restarted one
is "the keys after the end and a kill" "$(reserve "$iscsi" other keys)" ""
tries 0
is "the registration for now" "$(reserve "$iscsi" holder forget 6)" good
is "the reservation for now" "$(reserve "$iscsi" holder reserve 6)" good
tries 1

restarted one
is "the keys of a registration for now" "$(reserve "$iscsi" other keys)" ""
tries 0
