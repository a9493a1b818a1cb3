# The kernel's target closes its port, and removes and makes its subsystem again, under the verified load of our host: the
# host reconnects each time, and not one block is wrong at the end.
# modules: nvmet nvmet-tcp null_blk,nr_devices=0 configfs
# seconds: 180
null_blk
nvmet_serve /dev/nullb0

bench_begins nvme+tcp://$ADDRESS:$NVMET_PORT/$NVMET_NQN/1 --bs 4k --iodepth 8 -i 2 --runtime 25s

wait_for 30 nvmet_made_more_than 0
sleep 2
for round in 1 2 3; do
    bench_goes_on
    before=$(nvmet_controllers)
    nvmet_unlink
    sleep 1
    nvmet_link
    wait_for 30 nvmet_made_more_than $before
    sleep 1
done
for round in 1 2 3; do
    bench_goes_on
    before=$(nvmet_controllers)
    nvmet_remove
    sleep 1
    nvmet_serve /dev/nullb0
    wait_for 30 nvmet_made_more_than $before
    sleep 1
done
bench_goes_on
bench_ends 6
nvmet_remove
