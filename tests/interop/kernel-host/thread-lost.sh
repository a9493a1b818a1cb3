# The kernel fails within the thread that serves a host: over veth from another network namespace, long writes from large
# pages meet a fault of Linux 5.18 to 6.4. The target says so, closes its connections and ends, so that Linux connects to
# the next one that serves there; and where the host's interface copies what it sends, the same writes do no harm.
# modules: nvme-tcp crc32c_generic veth
# tools: nvme ip fio ethtool
# seconds: 300
# log: .
ADDRESS=10.0.0.1
ip netns add away
ip link add near type veth peer name far netns away
ip addr add 10.0.0.2/24 dev near
ip link set near up
ip netns exec away ip addr add 10.0.0.1/24 dev far
ip netns exec away ip link set far up
serve_away() {
    ip netns exec away fabrix serve ram:128M -n $NQN -l nvme+tcp://10.0.0.1:4420 --allow any -o json >/tmp/serve.out 2>/tmp/serve.err &
    target=$!
    wait_for 30 serves_or_ended
}
serve_away
connect -i 2 --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600
d=$(disk_of 1)
fio --name=long --filename="$d" --direct=1 --ioengine=libaio --iodepth=16 --bs=4M --rw=write --size=128M >fio.out 2>&1 &
load=$!
wait_for 60 grep -q "the kernel has failed within the thread shard-" /tmp/serve.err
wait_for 60 not controller_is live
ethtool -K near sg off
serve_away
wait_for 60 controller_is live
wait $load || fail "fio: $(cat fio.out)"
contains fio "$(cat fio.out)" "err= 0"
disconnect
stop
