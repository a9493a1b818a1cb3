# Four paths to one disk under each policy of Linux: which paths get requests; a path that is inaccessible, silent, reset or
# without a link takes nothing with it, and gets requests again when it is back.
# modules: nvme-tcp crc32c_generic tcp_diag veth sch_netem
# tools: nvme fio ip tc ss
# kernel: own newer
# seconds: 400
# log: nvme nvme[0-9]+: (starting error recovery|failed to send request|Reconnecting|queue|receive failed|I/O|rw|failed|Failed)
# log: nvme nvme[0-9]+: (Connect command failed|reading config|failed nvme_keep_alive_end_io|Successfully reconnected)
# log: (block )?nvme[0-9a-z]+: (no usable path - requeuing I/O|rescanning namespaces)|callbacks suppressed|long keepalive RTT
[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || fail "this kernel has no native multipath"
export FABRIX_API=unix:/run/fabrix.sock
links_away 4
ip netns exec away fabrix serve ram:32M -n $NQN -l nvme+tcp://10.0.1.1 -l nvme+tcp://10.0.2.1 -l nvme+tcp://10.0.3.1 \
    -l nvme+tcp://10.0.4.1 --allow any --api $FABRIX_API -o json >/tmp/serve.out 2>/tmp/serve.err &
target=$!
wait_for 30 serves_or_ended
controllers=
for at in 1 2 3 4; do
    ADDRESS=10.0.$at.1
    connect -i 2 --keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=600
    controllers="$controllers $ctrl"
done

# path AT: the path over network AT, like nvme0c1n1. Its controller is $ctrl.
path() {
    # shellcheck disable=SC2086
    ctrl=$(echo $controllers | cut -d' ' -f"$1")
    path=$(basename /sys/block/nvme*c"${ctrl#nvme}"n1)
}

# answers AT: requests that were answered over this path.
answers() {
    path "$1"
    awk '{print $1 + $5}' /sys/block/"$path"/stat
}

all_answers() {
    for at in 1 2 3 4; do
        answers $at
    done
}

# used: how many of the paths answer requests within a second.
used() {
    all_answers >/tmp/before
    sleep 1
    all_answers | paste /tmp/before - | awk '$2 > $1 + 4 {used++} END {print used + 0}'
}

uses() {
    [ "$(used)" = "$1" ]
}

# is_back AT PATHS: the path stands, and so many get requests.
is_back() {
    path "$1"
    wait_for 60 controller_is live
    wait_for 20 uses "$2"
    load_goes_on
}

# is_out AT: Linux has found out that the path does not stand, and the load goes on.
is_out() {
    path "$1"
    wait_for 20 not controller_is live
    load_goes_on
    load_goes_on
}

set_state() {
    fabrix ctl ana set 1 "$1" --listener 10.0.1.1:4420 >/tmp/ana.out
}

state_is() {
    path 1
    [ "$(cat /sys/block/"$path"/ana_state)" = "$1" ]
}

through_it_all() {
    load "$disk" 'nvme*c*n1'
    wait_for 20 uses "$1"
    set_state inaccessible
    wait_for 2 state_is inaccessible
    load_goes_on
    before=$(answers 1)
    load_goes_on
    is "what an inaccessible path answers" "$(answers 1)" "$before"
    set_state optimized
    wait_for 2 state_is optimized
    is_back 1 "$1"
    tc qdisc add dev near2 root netem loss 100%
    ip netns exec away tc qdisc add dev far2 root netem loss 100%
    is_out 2
    ip netns exec away tc qdisc del dev far2 root
    tc qdisc del dev near2 root
    is_back 2 "$1"
    end_sockets dst 10.0.3.1
    is_out 3
    is_back 3 "$1"
    ip link set near4 down
    is_out 4
    ip link set near4 up
    is_back 4 "$1"
    kill -INT $load
    load_was_right
}

policy=$(echo /sys/class/nvme-subsystem/*/iopolicy)
echo numa >"$policy"
through_it_all 1
echo round-robin >"$policy"
through_it_all 4
# Linux 6.11 and later.
if echo queue-depth >"$policy" 2>/dev/null; then
    through_it_all 4
fi
disconnect
stop
