# Two paths of different delay: which share of the reads each policy of ours gives to the fast path.
# modules: veth sch_netem
# tools: ip tc
# seconds: 200
links_away 2
tc qdisc add dev near1 root netem delay 10ms
tc qdisc add dev near2 root netem delay 50ms
ip netns exec away fabrix serve ram:32M -n $NQN -l nvme+tcp://10.0.1.1 -l nvme+tcp://10.0.2.1 --allow any -o json \
    >/tmp/serve.out 2>/tmp/serve.err &
target=$!
wait_for 30 serves_or_ended
paths="(nvme+tcp://10.0.1.1/$NQN/1,nvme+tcp://10.0.2.1/$NQN/1)"

received() {
    cat /sys/class/net/near$1/statistics/rx_bytes
}

# share POLICY: percent of the bytes that come over the fast path, once both stand.
share() {
    fabrix bench "multipath:$paths,policy=$1" --rw randread --bs 4k --iodepth 16 --size 16M --runtime 8s -o json \
        >/tmp/bench.json 2>/tmp/bench.err &
    bench=$!
    sleep 4
    fast=$(received 1) slow=$(received 2)
    sleep 3
    fast=$(($(received 1) - fast)) slow=$(($(received 2) - slow))
    wait $bench || fail "$1: the bench ended with $?: $(cat /tmp/bench.err)"
    share=$((100 * fast / (fast + slow)))
    echo "figure: policy $1: $share % of the reads over the path of 10 ms, the others over that of 50 ms"
}

share round-robin:1
[ $share -ge 45 ] && [ $share -le 55 ] || fail "round-robin gave the fast path $share %"
# As many requests wait on each path, so the shares are as the times of an answer. What the machines need is added to both.
share queue-depth
[ $share -ge 65 ] && [ $share -le 90 ] || fail "queue-depth gave the fast path $share %"
for policy in service-time latency; do
    share $policy
    [ $share -ge 65 ] || fail "$policy gave the fast path $share %"
done
share fixed:1
[ $share -le 5 ] || fail "fixed:1 gave the other path $share %"
stop
