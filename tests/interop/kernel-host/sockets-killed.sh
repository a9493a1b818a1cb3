# Connections are torn down 50 times under verified load; Linux comes back each time and nothing is lost.
# modules: nvme-tcp crc32c_generic tcp_diag
# tools: nvme ss
# seconds: 300
# log: nvme nvme[0-9]+: (starting error recovery|failed to send request|Reconnecting|queue|receive failed|I/O|rw|sn)
# log: no usable path - requeuing I/O|callbacks suppressed
# log: nvme nvme[0-9]+: (queue 0: timeout request 0x[0-9a-f]+ type 4|long keepalive RTT|failed nvme_keep_alive_end_io)
serve ram:32M
connect -i 2 --reconnect-delay=1 --ctrl-loss-tmo=600
d=$(disk_of 1)
fabrix bench file:$d --rw randrw --bs 8k --iodepth 16 --verify --allow-write --runtime 200s -o json >bench.json 2>bench.err &
load=$!
cut=0
while [ $cut -lt 50 ]; do
    wait_for 30 controller_is live
    sleep 0.3
    end_sockets dst 127.0.0.1 dport = 4420
    cut=$((cut + 1))
    echo "cut $cut"
    wait_for 30 not controller_is live
    kill -0 $load || fail "the load ended: $(cat bench.err)"
done
wait_for 30 controller_is live
sleep 1
kill -INT $load
wait $load || contains "the load" "$(cat bench.err)" "interrupted: what was measured until then is shown"
contains bench "$(cat bench.json)" '"errors": 0'
is "the disk's name" "$(disk_of 1)" $d
disconnect
stop
