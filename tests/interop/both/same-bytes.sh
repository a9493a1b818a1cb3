# What one host writes through a target, the other reads byte for byte: Linux and our host at our running target, and at
# the kernel's, whose disk shows the same on the machine itself.
# modules: nvme-tcp nvmet nvmet-tcp brd,rd_nr=1,rd_size=2048 configfs
# tools: nvme
CHAIN_NQN=nqn.2026-01.io.fabrix:chain
CHAIN_PORT=4422

# chain URI: our host holds the disk, and a second target of ours shows it to Linux, so that bytes go through our host.
chain() {
    # Else the line of the one before would be taken for this one's.
    : >/tmp/chain.out
    fabrix serve "$1" -n $CHAIN_NQN -l nvme+tcp://$ADDRESS:$CHAIN_PORT -o json >/tmp/chain.out 2>/tmp/chain.err &
    chain=$!
    wait_for 30 grep -q nvme_connect /tmp/chain.out
}

unchain() {
    kill $chain
    wait $chain || fail "the chain ended with $?: $(cat /tmp/chain.err)"
}

# The disk has one identity wherever it is shown, and Linux takes it once: attached by one way, then by the other.
through() {
    nvme disconnect -n $NQN >/dev/null
    nvme connect -t tcp -a $ADDRESS -s $CHAIN_PORT -n $CHAIN_NQN
    wait_for 30 has_namespace
}

direct() {
    nvme disconnect -n $CHAIN_NQN >/dev/null
    connect
}

# Other bytes, written to the whole of the disk of 2 MiB in pieces of this size, past Linux's cache.
put() {
    dd if=/dev/urandom of=/dev/shm/random bs=1M count=2 2>/dev/null
    dd if=/dev/shm/random of="$1" bs="$2" oflag=direct 2>/dev/null
}

# The disk has exactly the bytes of the last `put`.
same() {
    dd if="$1" of=/dev/shm/read bs="$2" iflag=direct 2>/dev/null
    cmp /dev/shm/random /dev/shm/read || fail "$1 is not what was written"
}

# Our target: Linux writes and our host reads, our host writes and Linux reads.
serve file:/dev/shm/disk,size=2M,direct=off
chain nvme+tcp://$ADDRESS:$PORT/$NQN/1
connect
for size in 4k 1M; do
    put "$disk" $size
    through
    same "$disk" 64k
    put "$disk" $size
    direct
    same "$disk" 64k
    cmp /dev/shm/random /dev/shm/disk || fail "the file is not what was written"
done
disconnect
unchain
stop

# The kernel's target: our host writes and the machine reads its disk, the machine writes and our host reads.
nvmet_serve /dev/ram0
chain nvme+tcp://$ADDRESS:$NVMET_PORT/$NVMET_NQN/1
through
for size in 4k 1M; do
    put "$disk" $size
    same /dev/ram0 64k
    put /dev/ram0 $size
    same "$disk" 64k
done
nvme disconnect -n $CHAIN_NQN >/dev/null
unchain
nvmet_remove
