# Our host at two ports of the kernel's target, whose ANA group has another state at each: the host sees each state within
# 2 s, moves a verified load to the better path, waits while none serves, and loses nothing.
# modules: nvmet nvmet-tcp brd,rd_nr=1,rd_size=65536 configfs crc32c_generic nbd,nbds_max=4
# tools: fio
# seconds: 240
# log: block nbd0: shutting down sockets
# log: nvmet_tcp: failed cmd [0-9a-f]+ id [0-9]+ opcode [12], data_len: [0-9]+
nvmet_serve /dev/ram0
SECOND_PORT=$((NVMET_PORT + 1))
mkdir $nvmet/ports/2
echo $TRANSPORT >$nvmet/ports/2/addr_trtype
echo ipv4 >$nvmet/ports/2/addr_adrfam
echo $ADDRESS >$nvmet/ports/2/addr_traddr
echo $SECOND_PORT >$nvmet/ports/2/addr_trsvcid
ln -s $nvmet/subsystems/$NVMET_NQN $nvmet/ports/2/subsystems/$NVMET_NQN

# set_state PORT STATE: of the group, in the kernel's words.
set_state() {
    echo "$2" >$nvmet/ports/$1/ana_groups/1/ana_state
}

# sees PORT STATE: `fabrix path list` says so of the path to this port.
sees() {
    fabrix path list | grep -q ":$1 *connected *$2 "
}

# wait_2s COMMAND...: the time that the states may take.
wait_2s() {
    wait_for 2 "$@"
}

disk=$(fabrix attach "nvme+tcp://$ADDRESS:$NVMET_PORT,$ADDRESS:$SECOND_PORT/$NVMET_NQN/1" --as nbd)
wait_for 30 sees $NVMET_PORT optimized
wait_for 30 sees $SECOND_PORT optimized
fio --name=load --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 --bs=4k-64k --rw=randwrite --size=16M \
    --time_based --runtime=40 --verify=crc32c --verify_fatal=1 --verify_backlog=16 >/tmp/load.out 2>&1 &
load=$!
sleep 2
set_state 1 non-optimized
wait_2s sees $NVMET_PORT non-optimized
sleep 2
set_state 2 inaccessible
wait_2s sees $SECOND_PORT inaccessible
sleep 2
set_state 1 inaccessible
wait_2s sees $NVMET_PORT inaccessible
sleep 2
kill -0 $load || fail "the load did not wait: $(cat /tmp/load.out)"
set_state 2 optimized
wait_2s sees $SECOND_PORT optimized
sleep 2
set_state 1 change
wait_2s sees $NVMET_PORT inaccessible
sleep 2
set_state 1 optimized
wait_2s sees $NVMET_PORT optimized
wait $load || fail "fio: $(cat /tmp/load.out)"
contains "fio" "$(cat /tmp/load.out)" "err= 0"
fabrix detach "$disk"
rm $nvmet/ports/2/subsystems/$NVMET_NQN
rmdir $nvmet/ports/2
nvmet_remove
