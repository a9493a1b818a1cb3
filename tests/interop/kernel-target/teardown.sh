# The kernel's target closes its port, and removes and makes its subsystem again, under the verified load of our host: the
# host reconnects each time, and not one block is wrong at the end.
# modules: nvmet nvmet-tcp null_blk,nr_devices=0 configfs
# seconds: 180
null_blk
nvmet_serve /dev/nullb0

fabrix bench nvme+tcp://$ADDRESS:$NVMET_PORT/$NVMET_NQN/1 --rw randrw --bs 4k --iodepth 8 --size 16M -i 2 \
    --runtime 25s --verify --allow-write -o json >/tmp/bench.json 2>/tmp/bench.err &
bench=$!
# How often the target has taken in a controller.
controllers() {
    dmesg | grep -c "creating nvm controller"
}
more_than() {
    [ "$(controllers)" -gt "$1" ]
}

wait_for 30 more_than 0
sleep 2
for round in 1 2 3; do
    kill -0 $bench || fail "the bench has ended: $(cat /tmp/bench.err)"
    before=$(controllers)
    nvmet_unlink
    sleep 1
    nvmet_link
    wait_for 30 more_than $before
    sleep 1
done
for round in 1 2 3; do
    kill -0 $bench || fail "the bench has ended: $(cat /tmp/bench.err)"
    before=$(controllers)
    nvmet_remove
    sleep 1
    nvmet_serve /dev/nullb0
    wait_for 30 more_than $before
    sleep 1
done
kill -0 $bench || fail "the bench has ended: $(cat /tmp/bench.err)"
wait $bench || fail "the bench ended with $?: $(cat /tmp/bench.err)"
verified /tmp/bench.json
is "how often it came back" "$(grep -c 'connected again' /tmp/bench.err)" 6
nvmet_remove
