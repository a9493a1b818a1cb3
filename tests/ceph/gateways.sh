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
wait_for 10 stands_by 1
take 1
wait_for 5 serves 1
load_goes_on
bench_is_interrupted

# A full cluster takes no write. The gateway keeps its disks, so that hosts can read and discard.
before=$(client 1)
full_at 0.0001 0.0002 0.0003
wait_for 20 is_full
fabrix bench nvme+tcp://10.8.0.1/$GROUP_NQN/1 --rw read --bs 4k --runtime 7s >/dev/null
serves 1 || fail "a full cluster ends the gateway"
is "the client of the gateway" "$(client 1)" "$before"
full_at 0.85 0.9 0.95
wait_for 20 has_room
ends_with 2 fabrix ctl --api unix:"$WORK"/api2 namespace resize 1 2G
contains "a resize at the other gateway" "$said" "another gateway serves ANA group 1"

# The same over iSCSI, in order.
load_begins "$GROUP_OVER_ISCSI" --bs 4k --iodepth 4 --runtime 4s
take 2
wait_for 5 serves 2
take 1
wait_for 5 serves 1
bench_is_right

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
third="ip netns exec gw2 fabrix serve --allow any --listen nvme+tcp://10.8.0.2:4444 --gateway-group"
rbd create --size 64M rbd/other
ends_with 2 $third test rbd:rbd/other,$AS_USER
contains "another disk" "$said" "namespace 1 is another disk at the gateway"
ends_with 2 $third test rbd:rbd/disk,$AS_USER rbd:rbd/other,$AS_USER
contains "one more disk" "$said" "namespace 2 is another disk at the gateway"
ends_with 2 $third test rbd:rbd/disk,ana=2,$AS_USER
contains "another ANA group" "$said" "namespace 1 is another disk at the gateway" "ANA group"
ends_with 2 $third test --nqn nqn.2026-01.example:other rbd:rbd/disk,$AS_USER
contains "another name" "$said" "give each gateway the same --nqn"
ends_with 2 $third test rbd:rbd/disk,ro,$AS_USER
contains "a read-only disk" "$said" "is read-only"
rbd create --size 64M --image-feature layering rbd/unlocked
ends_with 2 $third unlocked rbd:rbd/unlocked,$AS_USER
contains "an image without a lock" "$said" "rbd feature enable"
ceph auth get-or-create client.weak mon 'allow r' osd 'allow rwx pool=rbd' -o weak
ends_with 3 $third weak rbd:rbd/other,id=weak,keyring="$WORK"/weak
contains "a user who may not shut others out" "$said" "ceph auth caps client.weak"
ends_with 1 $third test rbd:rbd/disk,$AS_USER --listen nvme+tcp://10.8.0.2:4420
contains "a port that is in use" "$said" "cannot listen on 10.8.0.2:4420"
ends_with 2 fabrix serve ram:1M --gateway-group test
contains "a disk in memory" "$said" "is no image of Ceph"
ends_with 2 fabrix serve rbd:rbd/disk --gateway-group test --listen nvme+tcp://0.0.0.0 --allow any
contains "no address" "$said" "name the address and the port"
ends_with 2 fabrix ctl --api unix:"$WORK"/api1 ana set 1 inaccessible
contains "a state from outside" "$said" "ana take"
ends_with 2 fabrix ctl --api unix:"$WORK"/api1 namespace remove 1
contains "another set of disks" "$said" "all gateways of a group have the same disks"

# Another group does not get the image, and shuts nobody out.
before=$(ceph osd blocklist ls 2>/dev/null | grep -vc 192.0.2.0)
$third other rbd:rbd/disk,$AS_USER >other.out 2>other.err &
other=$!
wait_for 10 says other.err 'is locked by the client'
is "the clients that are shut out" "$(ceph osd blocklist ls 2>/dev/null | grep -vc 192.0.2.0)" "$before"
serves 1 || fail "the other group has taken the image"
kill $other
wait $other || true
