# The size of a served image follows `rbd resize`, and `fabrix ctl namespace resize` resizes the image.
# seconds: 120
# run: core
rbd create --size 64M rbd/changes
serve_image rbd:rbd/changes
size_is() {
    [ "$(shown size_bytes)" = "$1" ]
}
is "the size" "$(shown size_bytes)" 67108864
rbd resize --size 128M rbd/changes 2>/dev/null
wait_for 5 size_is 134217728
fabrix ctl --api unix:"$PWD"/api namespace resize 1 256M >/dev/null
is "the size" "$(shown size_bytes)" 268435456
rbd info rbd/changes | grep -q 'size 256 MiB' || fail "Ceph does not know of the new size"
