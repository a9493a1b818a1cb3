# An image that grows and shrinks from outside and by us is seen by the hosts; compare and write, zeroes, deallocation and
# reservations at it do what they do at every disk.
# seconds: 120
# run: core
api=unix:$PWD/api
rbd create --size 64M rbd/changes
serve_image rbd:rbd/changes
size_is() {
    [ "$(shown size_bytes)" = "$1" ]
}
is "the size" "$(shown size_bytes)" 67108864
rbd resize --size 128M rbd/changes 2>/dev/null
wait_for 5 size_is 134217728
fabrix ctl --api "$api" namespace resize 1 256M >/dev/null
is "the size" "$(shown size_bytes)" 268435456
rbd info rbd/changes | grep -q 'size 256 MiB' || fail "Ceph does not know of the new size"
