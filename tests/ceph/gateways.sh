# Two gateways to one image under verified load: the group moves in order, its owner is killed and comes back, ends in order,
# and nothing is lost. Discovery lists both; a group has one set of disks.
# seconds: 120
# run: core
# tools: ip
# network: own
group_up rbd:rbd/disk,$AS_USER
is "the gateways that discovery lists" "$(fabrix discover nvme+tcp://10.8.0.2 | grep -c 10.8.0.)" 2
not serves 2

load_begins "$GROUP" --bs 4k --iodepth 4 --runtime 90s
take 2
wait_for 5 serves 2
not serves 1
take 1
wait_for 5 serves 1
# It is shut out while it serves: hosts go on without an error, and it comes back by itself.
ceph osd blocklist add "$(client 1)" 2>/dev/null
wait_for 10 is_new_client "$(client 1)"
wait_for 5 serves_any
take 1
wait_for 5 serves 1
gateway_gets -KILL 1
wait_for 5 serves 2
gateway_ends 1
gateway 1 rbd:rbd/disk,$AS_USER
wait_for 10 stands_by 1
take 1
wait_for 5 serves 1
gateway_gets -TERM 1
wait_for 5 serves 2
gateway_ends 1
gateway 1 rbd:rbd/disk,$AS_USER
bench_is_interrupted
wait_for 10 stands_by 1
take 1
wait_for 5 serves 1

# The same over iSCSI, in order.
load_begins "$GROUP_OVER_ISCSI" --bs 4k --iodepth 4 --runtime 60s
take 2
wait_for 5 serves 2
take 1
wait_for 5 serves 1
bench_is_interrupted

# A reservation goes with the disk, also one that need not survive a loss of power.
is "a registration" "$(reserve iscsi://10.8.0.1:3260/$GROUP_IQN/0 iqn.2026-01.example:one forget 5)" good
is "a reservation" "$(reserve iscsi://10.8.0.1:3260/$GROUP_IQN/0 iqn.2026-01.example:one reserve 5)" good
take 2
wait_for 5 serves 2
is "a write of another host" "$(reserve iscsi://10.8.0.2:3260/$GROUP_IQN/0 iqn.2026-01.example:two write)" conflict
is "the keys" "$(reserve iscsi://10.8.0.2:3260/$GROUP_IQN/0 iqn.2026-01.example:two keys)" 5
take 1
wait_for 5 serves 1

# What does not fit a group is refused with a sentence.
rbd create --size 64M rbd/other
ends_with 2 ip netns exec gw2 fabrix serve rbd:rbd/other --gateway-group test --allow any --listen nvme+tcp://10.8.0.2:4444
contains "another disk" "$said" "namespace 1 is another disk at the gateway"
ends_with 2 fabrix serve ram:1M --gateway-group test
contains "a disk in memory" "$said" "is no image of Ceph"
ends_with 2 fabrix serve rbd:rbd/disk --gateway-group test --listen nvme+tcp://0.0.0.0 --allow any
contains "no address" "$said" "name the address and the port"
ends_with 2 fabrix ctl --api unix:"$WORK"/api1 ana set 1 inaccessible
contains "a state from outside" "$said" "ana take"
ends_with 2 fabrix ctl --api unix:"$WORK"/api1 namespace remove 1
contains "another set of disks" "$said" "all gateways of a group have the same disks"
