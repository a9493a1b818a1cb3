# How long hosts wait when the gateway that serves an image is lost, by cause, under verified load: a move in order, a process
# that is killed, one that is stopped and goes on (what it had in its queues must not arrive), a gateway that is cut off
# from the cluster, and one that is cut off from hosts. The figures are medians of 10, in ms.
# seconds: 1500
# run: measurement
# tools: ip
# network: own
ROUNDS=10
LOAD="--keep-alive-tmo 2s --bs 4k --iodepth 4"
# The monitor waits as long between two changes of the map as Ceph does by default.
export MONITOR_INTERVAL=1 MONITOR_WAIT=0.05
group_up rbd:rbd/disk,$AS_USER

# settle: the first gateway serves, the second one is there.
settle() {
    wait_for 30 stands_by 1
    wait_for 30 stands_by 2
    serves 1 || take 1
    wait_for 10 serves 1
}

# measure CAUSE SECONDS LOSE REPAIR: a load of so many seconds, during which the first gateway is lost and repaired.
measure() {
    rm -f waits
    round=0
    while [ $round -lt $ROUNDS ]; do
        settle
        # shellcheck disable=SC2086
        load_begins "$GROUP" $LOAD --runtime $2
        $3
        wait_for 15 serves 2
        $4
        bench_is_right
        longest >>waits
        round=$((round + 1))
    done
    sort -n waits | awk -v cause="$1" '{all[NR] = $1}
        END {printf "figure: %s: median %d ms, longest %d ms\n", cause, all[int((NR + 1) / 2)], all[NR]}'
}

move() {
    take 2
}
kill_first() {
    gateway_gets -KILL 1
}
start_first() {
    gateway_ends 1
    gateway 1 rbd:rbd/disk,$AS_USER
}
stop_first() {
    gateway_gets -STOP 1
}
# Once it goes on, the first gateway carries out what it still has, and is refused.
continue_first() {
    gateway_gets -CONT 1
}
cut_storage() {
    unplug storage 1
}
join_storage() {
    plug storage 1
}

measure "move in order" 3s move :
measure "process killed" 4s kill_first start_first
measure "process stopped and continued" 9s stop_first continue_first
measure "cut off from the cluster" 10s cut_storage join_storage

# A gateway that hosts do not reach, and that reaches the cluster, keeps its disks until they are asked for.
settle
load_begins "$GROUP" --keep-alive-tmo 2s --bs 4k --iodepth 4 --runtime 25s
unplug hosts 1
take 2
wait_for 10 serves 2
bench_is_right
echo "figure: cut off from hosts, and moved in order: longest $(longest) ms"
plug hosts 1
