# What the scripts share. Runs in dash, under `set -eu`, in a folder of its own. CEPH_CONF names a cluster, whose folder is
# $CLUSTER, and which has the image rbd/disk of 1 GiB.

target=
trap 'end_target' EXIT
# A script whose time is over ends in good order, too.
trap 'exit 1' TERM

# serve_image DISK WORD...: our target exports a disk over NVMe/TCP and iSCSI: $nvme and $iscsi. Its process is $target.
serve_image() {
    disk=$1
    shift
    rm -f serve.out
    fabrix serve "$disk" --nqn $NQN --listen nvme+tcp://127.0.0.1:0 --listen iscsi://127.0.0.1:0 --allow any \
        --api unix:"$PWD"/api "$@" >serve.out 2>serve.err &
    target=$!
    wait_for 60 says_where
    nvme=$(sed -n 's/^\(nvme+tcp:[^ ]*\) .*/\1/p' serve.out)
    iscsi=$(sed -n 's/^\(iscsi:[^ ]*\) .*/\1/p' serve.out)
}

says_where() {
    grep -qs '^iscsi:' serve.out || ! kill -0 $target
}

# Ends our target, if it runs.
end_target() {
    [ -n "$target" ] || return 0
    kill -CONT $target 2>/dev/null || true
    kill $target 2>/dev/null || true
    wait $target 2>/dev/null || true
    target=
}

# osd WORD...: sends a signal to the first OSD.
osd() {
    kill "$@" "$(cat "$CLUSTER"/run/osd.0.pid)"
}

# every_daemon SIGNAL: to the monitor and all OSDs.
every_daemon() {
    for file in "$CLUSTER"/run/*.pid; do
        kill "$1" "$(cat "$file")" || true
    done
}

# Memory of our target in KiB.
memory() {
    sed -n 's/^VmRSS: *\([0-9]*\) kB/\1/p' /proc/$target/status
}

# Processor time of our target so far, in hundredths of a second.
processor_ticks() {
    set -- $(sed 's/^.*) //' /proc/$target/stat)
    echo $((${12} + ${13}))
}

# shown KEY: the first value of that key in what our target says of itself.
shown() {
    fabrix ctl --api unix:"$PWD"/api show -o json | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}
