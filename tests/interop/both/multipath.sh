# A disk of ours over two paths to our target: verified load while one path falls silent, comes back, and the other one is
# reset, once for each policy; both paths lost and found; other disks are refused.
# modules: tcp_diag veth nbd,nbds_max=4
# tools: ip ss fio
# seconds: 400
# log: block nbd0: shutting down sockets
links_away 2
ip netns exec away fabrix serve ram:32M ram:32M -n $NQN -l nvme+tcp://10.0.1.1 -l nvme+tcp://10.0.2.1 --allow any -o json \
    >/tmp/serve.out 2>/tmp/serve.err &
target=$!
wait_for 30 serves_or_ended
one=nvme+tcp://10.0.1.1/$NQN
other=nvme+tcp://10.0.2.1/$NQN

# paths_are TEXT: so many paths of the disk stand, as `fabrix list` says.
paths_are() {
    fabrix list | grep -q " $1 "
}

# has_come_back PATH: its connection was lost once, and stands.
has_come_back() {
    fabrix path list | grep -q "^[^ ]* *$1 .* connected .* 1 *-"
}

# through_it_all POLICY [OPTION]: verified load, with the first path down in between, and the second one reset.
through_it_all() {
    policy=$1
    shift
    disk=$(fabrix attach "multipath:($one/1,$other/1),policy=$policy$*" --as nbd --keep-alive-tmo 4s)
    wait_for 30 paths_are 2/2
    fio --name=load --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 --bs=4k-64k --rw=randwrite --size=16M \
        --time_based --runtime=30 --verify=crc32c --verify_fatal=1 --verify_backlog=16 >/tmp/load.out 2>&1 &
    load=$!
    sleep 2
    ip link set near1 down
    wait_for 60 paths_are 1/2
    sleep 2
    ip link set near1 up
    wait_for 60 paths_are 2/2
    end_sockets dst 10.0.2.1
    wait_for 60 has_come_back 1
    wait_for 60 paths_are 2/2
    wait $load || fail "$policy: fio: $(cat /tmp/load.out)"
    contains "fio with $policy" "$(cat /tmp/load.out)" "err= 0"
    contains "the list" "$(fabrix list)" attached
    fabrix detach "$disk"
}
through_it_all queue-depth
through_it_all round-robin ,failover=fast
through_it_all fixed:1

# Nobody is left, and everybody comes back: no error within fast-io-fail.
disk=$(fabrix attach "multipath:($one/1,$other/1)" --as nbd --keep-alive-tmo 4s)
wait_for 30 paths_are 2/2
ip link set near1 down
ip link set near2 down
wait_for 60 paths_are 0/2
dd if=/dev/zero of="$disk" bs=4096 count=1 oflag=direct 2>/dev/null &
writer=$!
sleep 1
ip link set near1 up
ip link set near2 up
wait $writer || fail "a write failed while no path was left for a moment"
fabrix detach "$disk"

ends_with 3 fabrix bench "multipath:($one/1,$other/2)" --number-ios 1
contains "two disks" "$said" "not the same disk" UUID
ends_with 2 fabrix bench "multipath:($one/1,$other/1),policy=fixed:2" --number-ios 1
contains "the policy" "$said" "2 paths, counted from 0"
stop
