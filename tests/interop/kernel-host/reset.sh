# A reset of the controller under verified load loses nothing; a controller that is deleted under load goes cleanly.
# modules: nvme-tcp
# tools: nvme
# run: core
# log: nvme nvme[0-9]+: (resetting controller|failed to send request -32)
# log: no (usable path - requeuing|available path - failing) I/O|callbacks suppressed
# log: Buffer I/O error|I/O error, dev nvme
serve ram:32M
connect -i 2
d=$(disk_of 1)
fabrix bench file:$d --rw randrw --bs 8k --iodepth 16 --verify --allow-write --runtime 8s -o json >bench.json 2>bench.err &
load=$!
for n in $(seq 5); do
    sleep 0.5
    nvme reset /dev/$ctrl
    wait_for 30 controller_is live
done
wait $load || fail "the verified load: $(cat bench.err)"
contains bench "$(cat bench.json)" '"errors": 0'

# The load fails, the kernel does not.
fabrix bench file:$d --rw randread --bs 4k --iodepth 16 --runtime 20s -o json >/dev/null 2>&1 &
load=$!
sleep 1
echo 1 >/sys/class/nvme/$ctrl/delete_controller
wait $load || true
refused disk_of 1
connect
disconnect
stop
