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

# full_at NEARLY STOPPED FULL: the parts of its room from which on an OSD is full.
full_at() {
    ceph osd set-full-ratio "$3"
    ceph osd set-backfillfull-ratio "$2"
    ceph osd set-nearfull-ratio "$1"
}
# The pool takes no write.
is_full() {
    ceph osd dump | grep -q "^pool.*,full"
}
has_room() {
    ! is_full
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

# Two gateways to one image, each in a network namespace of its own, gw1 and gw2. Each has a link `hosts` to us, 10.8.0.N,
# and a link `storage` to the cluster, 10.9.0.N. We and the cluster are at 254 of both networks.
# Needs `# network: own`.
GROUP_NQN=nqn.2026-01.io.fabrix:gateways-test
GROUP_IQN=iqn.2026-01.io.fabrix:gateways-test
network_up() {
    ip link set lo up
    for net in 8 9; do
        ip link add br$net type bridge
        ip addr add 10.$net.0.254/24 dev br$net
        ip link set br$net up
    done
    for gateway in 1 2; do
        ip netns add gw$gateway
        ip -n gw$gateway link set lo up
        for net in 8 9; do
            name=hosts
            [ $net = 8 ] || name=storage
            ip link add $name$gateway type veth peer name $name netns gw$gateway
            ip link set $name$gateway master br$net up
            ip -n gw$gateway addr add 10.$net.0.$gateway/24 dev $name
            ip -n gw$gateway link set $name up
        done
    done
}

# What a user of Ceph may do who is no administrator.
AS_USER="id=fabrix,keyring=$WORK/key"

# group_up DISK WORD...: the network, a cluster there, and both gateways. The first one serves ANA group 1.
group_up() {
    network_up
    CLUSTER=$WORK/group
    trap 'group_down' EXIT
    CEPH_CONF=$(dash "$CLUSTER_SH" up "$CLUSTER" 1 10.9.0.254)
    export CEPH_CONF
    ceph auth get-or-create client.fabrix mon 'profile rbd' osd 'profile rbd pool=rbd' -o "$WORK"/key
    gateway 1 "$@"
    wait_for 20 serves 1
    gateway 2 "$@"
    wait_for 20 says "$WORK"/gw2.out '^iscsi:'
}

# gateway NUMBER DISK WORD...: starts a gateway. Its process is in the file gwNUMBER.pid.
gateway() {
    number=$1
    shift
    ip netns exec gw$number fabrix serve "$@" --gateway-group test --allow any --state "$WORK"/state$number \
        --listen nvme+tcp://10.8.0.$number --listen iscsi://10.8.0.$number --api unix:"$WORK"/api$number \
        >"$WORK"/gw$number.out 2>>"$WORK"/gw$number.err &
    echo $! >"$WORK"/gw$number.pid
}

# gateway_gets SIGNAL NUMBER
gateway_gets() {
    kill "$1" "$(cat "$WORK"/gw$2.pid)"
}

# gateway_ends NUMBER: waits until its process is gone.
gateway_ends() {
    wait "$(cat "$WORK"/gw$1.pid)" || true
}

# serves NUMBER: the gateway serves ANA group 1.
serves() {
    fabrix ctl --api unix:"$WORK"/api$1 ana list 2>/dev/null | grep -q 'optimized *nvme'
}

serves_any() {
    serves 1 || serves 2
}

# stands_by NUMBER: the gateway is there.
stands_by() {
    fabrix ctl --api unix:"$WORK"/api$1 ana list >/dev/null 2>&1
}

says() {
    grep -qs "$2" "$1"
}

# load_begins URI WORD...: as bench_begins, until data moves between us and the first gateway.
load_begins() {
    bench_begins "$@"
    load_goes_on
}
# load_goes_on: data moves between us and the first gateway from now on.
load_goes_on() {
    wait_for 15 has_moved $(($(bytes_moved) + 500000))
}
has_moved() {
    [ "$(bytes_moved)" -gt $1 ]
}
bytes_moved() {
    awk '$1 == "hosts1:" {print $2 + $10}' /proc/net/dev
}

# client NUMBER: address of the client of a gateway's disks.
client() {
    rados -p rbd get fabrix.gateways.test - | sed -n "s/^member $1 [0-9]* [a-z]* \([^ ]*\) .*/\1/p"
}
is_new_client() {
    [ "$(client 1)" != "$1" ]
}

# take NUMBER: the gateway asks for ANA group 1.
take() {
    fabrix ctl --api unix:"$WORK"/api$1 ana take 1 >/dev/null
}

# unplug LINK NUMBER, plug LINK NUMBER: the link `hosts` or `storage` of a gateway.
unplug() {
    ip link set $1$2 down
}
plug() {
    ip link set $1$2 up
}

# The group as a disk with two paths.
GROUP="multipath:(nvme+tcp://10.8.0.1/$GROUP_NQN/1,nvme+tcp://10.8.0.2/$GROUP_NQN/1)"
GROUP_OVER_ISCSI="multipath:(iscsi://10.8.0.1/$GROUP_IQN/0,iscsi://10.8.0.2/$GROUP_IQN/0)"

# The time of the bench ends, and all blocks were right, however often it has connected.
bench_is_right() {
    wait $bench || fail "the bench ended with $?: $(cat "$WORK"/bench.err "$WORK"/gw?.err)"
    verified "$WORK"/bench.json
}

# The longest wait of a request of the last bench, in ms.
longest() {
    sed -n 's/.*"max": \([0-9]*\),.*/\1/p' "$WORK"/bench.json | sort -n | tail -n 1 | sed 's/......$//; s/^$/0/'
}

group_down() {
    for number in 1 2; do
        gateway_gets -CONT $number 2>/dev/null || true
        gateway_gets -KILL $number 2>/dev/null || true
    done
    dash "$CLUSTER_SH" down "$CLUSTER"
}
