# How long requests wait when the path in use is lost, by cause: our host and Linux' native multipath, at the same target over
# the same two networks at the same time. The figures are medians of 20, in ms; reads and writes are counted apart.
# modules: nvme-tcp crc32c_generic tcp_diag veth sch_netem nbd,nbds_max=4
# tools: nvme fio ip tc ss
# seconds: 2400
# log: nvme nvme[0-9]+: (starting error recovery|failed to send request|Reconnecting|queue|receive failed|I/O|rw|failed|Failed)
# log: nvme nvme[0-9]+: (Connect command failed|reading config|failed nvme_keep_alive_end_io|Successfully reconnected)
# log: (block )?nvme[0-9a-z]+: (no usable path - requeuing I/O|rescanning namespaces)|callbacks suppressed|long keepalive RTT
# log: block nbd0: shutting down sockets
ROUNDS=20
[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || fail "this kernel has no native multipath"
export FABRIX_API=unix:/run/fabrix.sock
links_away 2

serve_both() {
    ip netns exec away fabrix serve ram:16M ram:16M -n $NQN -l nvme+tcp://10.0.1.1 -l nvme+tcp://10.0.2.1 --allow any \
        --api $FABRIX_API -o json >/tmp/serve.out 2>/tmp/serve.err &
    target=$!
    wait_for 30 serves_or_ended
}
serve_both

# Linux takes the path that stands first.
ADDRESS=10.0.1.1
connect --keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=600
first=$ctrl
ADDRESS=10.0.2.1
connect --keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=600
kernels=$(disk_of 1)
ours=$(fabrix attach "multipath:(nvme+tcp://10.0.1.1/$NQN/2,nvme+tcp://10.0.2.1/$NQN/2),policy=fixed:0" --as nbd \
    --keep-alive-tmo 2s --reconnect-delay 1s)

all_stand() {
    fabrix list | grep -q " 2/2 " && ctrl=$first && controller_is live
}

# Both hosts use the first path, and it answers.
answered_over_first() {
    awk '{print $1 + $5}' /sys/block/nvme*c"${first#nvme}"n1/stat
}

first_is_used() {
    [ "$(answered_over_first)" -gt "$answered" ]
}

both_use_first() {
    wait_for 60 all_stand
    answered=$(answered_over_first)
    wait_for 20 first_is_used
}

reset_path() {
    end_sockets dst 10.0.1.1
    sleep 1
}

silence_path() {
    tc qdisc add dev near1 root netem loss 100%
    ip netns exec away tc qdisc add dev far1 root netem loss 100%
    sleep 14
    ip netns exec away tc qdisc del dev far1 root
    tc qdisc del dev near1 root
}

kill_target() {
    kill -9 $target
    wait $target || true
    serve_both
    sleep 10
}

flip_path() {
    fabrix ctl ana set 1 inaccessible --listener 10.0.1.1:4420 >/tmp/ana.out
    sleep 1
    fabrix ctl ana set 1 optimized --listener 10.0.1.1:4420 >/tmp/ana.out
}

# One word of fio for each host and direction: NAME DISK RW.
job() {
    echo "--name=$1 --filename=$2 --rw=$3 --write_lat_log=/tmp/$1"
}

# waited LOG: the longest wait in each window of /tmp/windows, in ms: the median of all.
waited() {
    while read -r from to; do
        tr -d , <"$1" | awk -v from="$from" -v to="$to" '$1 >= from && $1 <= to && $2 > most {most = $2} END {print most / 1e6}'
    done </tmp/windows | sort -n | awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'
}

# measure CAUSE COMMAND
measure() {
    rm -f /tmp/*_lat.1.log /tmp/windows
    # shellcheck disable=SC2046
    fio --direct=1 --ioengine=libaio --iodepth=4 --bs=4k --time_based --runtime=2000 --log_avg_msec=20 --log_max_value=1 \
        --per_job_logs=0 --log_unix_epoch=1 --disable_slat=1 --disable_clat=1 $(job kernel-read "$kernels" randread) \
        $(job kernel-write "$kernels" randwrite) $(job our-read "$ours" randread) $(job our-write "$ours" randwrite) \
        >/tmp/load.out 2>&1 &
    load=$!
    round=0
    while [ $round -lt $ROUNDS ]; do
        both_use_first
        from=$(date +%s%3N)
        $2
        echo "$from $(date +%s%3N)" >>/tmp/windows
        round=$((round + 1))
    done
    both_use_first
    kill -0 $load || fail "$1: the load has ended: $(cat /tmp/load.out)"
    kill -INT $load
    wait $load || true
    not grep -q 'err= *[1-9]' /tmp/load.out || fail "$1: fio: $(cat /tmp/load.out)"
    for host in kernel our; do
        for way in read write; do
            echo "figure: $1: $host $way: $(waited /tmp/$host-${way}_lat.log) ms"
        done
    done
}
measure "ANA state" flip_path
measure reset reset_path
measure "target killed and started again" kill_target
measure silence silence_path
fabrix detach "$ours"
disconnect
stop
