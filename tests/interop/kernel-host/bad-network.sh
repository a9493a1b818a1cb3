# Delay, loss and reordering, and a link that is down for longer than the keep-alive: nothing is lost, the disk returns.
# modules: nvme-tcp crc32c_generic veth sch_netem
# tools: nvme ip tc
# seconds: 300
# log: nvme nvme[0-9]+: (starting error recovery|failed to send request|Reconnecting|queue|receive failed|I/O|rw|failed|Failed)
# log: nvme nvme[0-9]+: (Connect command failed|reading config|failed nvme_keep_alive_end_io)
# log: no usable path - requeuing I/O|callbacks suppressed|long keepalive RTT
ADDRESS=10.0.0.1
ip netns add away
ip link add near type veth peer name far netns away
ip addr add 10.0.0.2/24 dev near
ip link set near up
ip netns exec away ip addr add 10.0.0.1/24 dev far
ip netns exec away ip link set far up
ip netns exec away fabrix serve ram:32M -n $NQN -l nvme+tcp://10.0.0.1:4420 --allow any -o json >/tmp/serve.out 2>/tmp/serve.err &
target=$!
wait_for 30 serves_or_ended
connect -i 2 --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600 -G
d=$(disk_of 1)

# load SECONDS: in the background, as $load.
load() {
    fabrix bench file:$d --rw randrw --bs 16k --iodepth 8 --verify --allow-write --runtime "$1" -o json >bench.json 2>bench.err &
    load=$!
}

loaded() {
    wait $load || fail "the verified load: $(cat bench.err)"
    contains bench "$(cat bench.json)" '"errors": 0'
}

for words in "delay 20ms 5ms" "loss 2%" "delay 5ms reorder 30% 50%" "duplicate 5%"; do
    # shellcheck disable=SC2086
    tc qdisc replace dev near root netem $words
    load 4s
    loaded
done
tc qdisc del dev near root

load 30s
sleep 2
ip link set near down
# Both ends miss the keep-alive: the target forgets the host, Linux starts to reconnect.
wait_for 60 not controller_is live
sleep 8
ip link set near up
wait_for 60 controller_is live
loaded
is "the disk's name" "$(disk_of 1)" $d
disconnect
stop
