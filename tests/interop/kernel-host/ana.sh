# Two paths to one disk: Linux sees each ANA state within 2 s, moves a verified load to the other path, and waits if none serves.
# modules: nvme-tcp crc32c_generic
# tools: nvme fio
# kernel: own newer
# seconds: 180
# log: (block )?nvme[0-9a-z]+: (no usable path - requeuing I/O|rescanning namespaces)|callbacks suppressed
[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || fail "this kernel has no native multipath"
export FABRIX_API=unix:/run/fabrix.sock
serve ram:32M ram:16M,ana=2 -l nvme+tcp://127.0.0.1:4420 -l nvme+tcp://127.0.0.1:4421 --api $FABRIX_API
connect -i 2
first=$ctrl
PORT=4421
connect -i 2
second=$ctrl
wait_for 30 has_disks 1 2
disk=$(disk_of 1)

# path CONTROLLER NSID: the name of a path, like nvme0c1n1.
path() {
    for name in /sys/block/nvme*c"${1#nvme}"n*; do
        if [ "$(cat "$name/nsid")" = "$2" ]; then
            echo "${name##*/}"
        fi
    done
}

# state_is CONTROLLER NSID STATE: what Linux thinks of a path.
state_is() {
    [ "$(cat /sys/block/"$(path "$1" "$2")"/ana_state)" = "$3" ]
}

# set_state GROUP STATE [PORT]
set_state() {
    fabrix ctl ana set "$1" "$2" ${3:+--listener 127.0.0.1:$3} >/tmp/ana.out
}

# written CONTROLLER: sectors that Linux has written to namespace 1 over this path.
written() {
    read -r _ _ _ _ _ _ sectors _ <"/sys/block/$(path "$1" 1)/stat"
    echo "$sectors"
}

# grows CONTROLLER BEFORE: it writes more there.
grows() {
    [ "$(written "$1")" -gt "$2" ]
}

# moves_to CONTROLLER FROM: the load uses the one path, and not the other.
moves_to() {
    wait_for 10 grows "$1" "$(written "$1")"
    before=$(written "$2")
    wait_for 10 grows "$1" "$(($(written "$1") + 100))"
    is "what is written over $2" "$(written "$2")" "$before"
    kill -0 $load || fail "the load ended: $(cat fio.err)"
}

for controller in $first $second; do
    for nsid in 1 2; do
        state_is $controller $nsid optimized || fail "the path of $controller to $nsid is not optimized at the start"
    done
done
is "the group of namespace 2" "$(cat /sys/block/"$(path "$first" 2)"/ana_grpid)" 2
contains "ctl ana list" "$(fabrix ctl ana list)" "group 1: namespace 1" "group 2: namespace 2" \
    "optimized        nvme+tcp://127.0.0.1:4420" "optimized        nvme+tcp://127.0.0.1:4421"

fio --name=ana --filename=$disk --rw=randwrite --size=16M --bs=8k --iodepth=8 --ioengine=libaio --direct=1 \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 --time_based --runtime=40 >fio.out 2>fio.err &
load=$!

# One path is not optimized, then none is: the load moves, and moves back.
for port in 4420 4421; do
    case $port in
    4420) here=$first there=$second ;;
    4421) here=$second there=$first ;;
    esac
    for state in non-optimized inaccessible persistent-loss; do
        set_state 1 $state $port
        wait_for 2 state_is $here 1 $state
        state_is $there 1 optimized || fail "the other listener has another state"
        state_is $here 2 optimized || fail "the other group has another state"
        moves_to $there $here
    done
    set_state 1 optimized $port
    wait_for 2 state_is $here 1 optimized
done

# No path serves for a moment: the load waits, and hears of no error.
set_state 1 inaccessible
wait_for 2 state_is $first 1 inaccessible
wait_for 2 state_is $second 1 inaccessible
before="$(written $first) $(written $second)"
sleep 1
is "what is written without a path" "$(written $first) $(written $second)" "$before"
dd if=$(disk_of 2) of=/dev/null bs=4096 count=16 iflag=direct 2>/dev/null || fail "the other group does not serve"
set_state 1 non-optimized 4421
wait_for 2 state_is $second 1 non-optimized
moves_to $second $first
set_state 1 optimized
wait_for 2 state_is $first 1 optimized
refused set_state 1 change
contains "a state that cannot be set" "$refusal" "cannot be set"

wait $load || fail "fio ended with $?: $(cat fio.err fio.out)"
contains fio "$(cat fio.out)" "err= 0"
for controller in $first $second; do
    ctrl=$controller
    controller_is live || fail "$controller is not live: Linux has reset it"
done
disconnect
stop
