# What the scripts share. Runs in the guest, in dash, under `set -eu`; nothing here knows a single script.

# Where measurements leave their results.
WORK=${WORK:-/tmp}

NQN=nqn.2026-01.io.fabrix:disks
ADDRESS=127.0.0.1
PORT=4420

# Says why, and ends the script.
fail() {
    echo "FAILED: $*"
    exit 1
}

# is WHAT FOUND EXPECTED
is() {
    [ "$2" = "$3" ] || fail "$1 is \`$2\`, not \`$3\`"
}

# contains WHAT TEXT PART...
contains() {
    what=$1 text=$2
    shift 2
    for part; do
        case $text in
        *"$part"*) ;;
        *) fail "$what does not say \`$part\`: $text" ;;
        esac
    done
}

# Fails unless the command fails; what it printed is in $refusal.
refused() {
    if refusal=$("$@" 2>&1); then
        fail "\`$*\` was expected to fail, and printed: $refusal"
    fi
}

# ends_with STATUS COMMAND...; what it printed is in $said.
ends_with() {
    status=0 expected=$1
    shift
    said=$("$@" 2>&1) || status=$?
    [ $status = $expected ] || fail "\`$*\` ended with $status, not $expected: $said"
}

not() {
    ! "$@"
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
    tries=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "\`$*\` did not come true in time"
        sleep 0.1
    done
}

# end_sockets FILTER: the kernel ends these TCP connections of ours, with a reset to the other side. Without its module
# `tcp_diag`, ss says the same and ends none.
end_sockets() {
    [ -d /sys/module/tcp_diag ] || fail "the script does not load tcp_diag"
    ss -K "$@" >/dev/null
}

# hangs PROCESS: it waits for something, and nothing can interrupt it.
hangs() {
    status=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # Its name, in parentheses, may have anything in it.
    status=${status##*) }
    [ "${status%% *}" = D ]
}

# Nobody in this machine does. To be waited for: who writes to a disk does so for a moment.
nobody_hangs() {
    for process in /proc/[0-9]*; do
        not hangs "${process#/proc/}" || return 1
    done
}

# users_hang DISK: somebody reads it, somebody writes through the cache, and neither has an answer: $users.
users_hang() {
    dd if="$1" of=/dev/null bs=4096 count=1 skip=99 iflag=direct 2>/dev/null &
    users=$!
    dd if=/dev/zero of="$1" bs=4096 count=1 seek=999 conv=fsync,notrunc 2>/dev/null &
    users="$users $!"
    for user in $users; do
        wait_for 30 hangs "$user"
    done
}

# users_are_told: those of users_hang have been told that it failed, and nobody hangs any more.
users_are_told() {
    for user in $users; do
        ! wait "$user" || fail "a user of a disk that is gone heard of no error"
    done
    wait_for 30 nobody_hangs
}

# The process of the only attachment is killed. A ublk device stays, and who uses it waits.
holder_is_killed() {
    kill -9 "$(fabrix list -o json | sed 's/.*"pid":\([0-9]*\).*/\1/')"
    wait_for 30 holder_is_dead
}

holder_is_dead() {
    fabrix list | grep -q dead
}

# Starts `fabrix serve` with these words, and waits until it listens. Its process is $target.
serve() {
    : >/tmp/serve.out
    fabrix serve --nqn $NQN --iqn $IQN "$@" -o json >/tmp/serve.out 2>/tmp/serve.err &
    target=$!
    wait_for 30 serves_or_ended
    kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
}

serves_or_ended() {
    grep -q nvme_connect /tmp/serve.out || ! kill -0 $target
}

# Ends the target as a user does.
stop() {
    kill $target
    wait $target || fail "the target ended with $?: $(cat /tmp/serve.err)"
}

# connect WORD...: nvme connect to our subsystem, and wait for the namespaces. The controller is $ctrl.
TRANSPORT=tcp
connect() {
    before=$(ls /sys/class/nvme)
    nvme connect -t $TRANSPORT -a $ADDRESS -s $PORT -n $NQN "$@"
    ctrl=
    for name in $(ls /sys/class/nvme); do
        case " $(echo $before) " in
        *" $name "*) ;;
        *) ctrl=$name ;;
        esac
    done
    [ -n "$ctrl" ] || fail "nvme connect made no controller"
    wait_for 30 has_namespace
}

has_namespace() {
    disk=$(disk_of 1)
}

# has_disks NSID...: Linux looks at one namespace after the other, and has made the disks of all of these.
has_disks() {
    for nsid; do
        disk_of "$nsid" || return 1
    done
}

# The block device of a namespace of our subsystem, once it can be opened.
disk_of() {
    for name in $(ls /sys/block); do
        case $name in
        nvme*c*n*) ;;
        nvme*)
            if [ "$(cat "/sys/block/$name/nsid")" = "$1" ] && [ -b "/dev/$name" ]; then
                echo "/dev/$name"
                return
            fi
            ;;
        esac
    done
    return 1
}

disconnect() {
    nvme disconnect -n $NQN >/dev/null
}

# queue NAME of a disk: its limit, as Linux has understood it.
queue() {
    cat "/sys/block/${1##*/}/queue/$2"
}

# mark_disk DISK MIB...: a mark in the first and the last block of each of these MiB; no cache of Linux keeps it.
mark_disk() {
    marked=$1
    shift
    for mib; do
        for page in $((mib * 256)) $((mib * 256 + 255)); do
            echo "a mark" | dd of="$marked" bs=4096 seek=$page conv=notrunc,sync oflag=direct 2>/dev/null
            text=$(dd if="$marked" bs=4096 skip=$page count=1 iflag=direct 2>/dev/null | head -n 1)
            is "page $page of $marked" "$text" "a mark"
        done
    done
}

# is_zero WHAT DISK MIB: every byte of a disk so large is zero, read from the disk itself. Tools: cmp.
is_zero() {
    echo 3 >/proc/sys/vm/drop_caches
    differs=$(cmp -n $(($3 << 20)) "$2" /dev/zero 2>&1) || fail "$1 is not zero: $differs"
}

# controller_is STATE: what Linux thinks of $ctrl.
controller_is() {
    [ "$(cat /sys/class/nvme/$ctrl/state)" = "$1" ]
}

# The iSCSI side of our target, and open-iscsi. Modules: iscsi_tcp sd_mod crc32c_generic. Tools: iscsid iscsiadm.
IQN=iqn.2026-01.io.fabrix:disks
PORTAL=$ADDRESS:3260
INITIATOR=iqn.2026-01.org.example:guest

# serve, but over iSCSI alone.
serve_iscsi() {
    serve --listen iscsi://$PORTAL "$@"
}

# Starts open-iscsi's daemon; words are lines of its configuration, like `node.session.queue_depth=8`.
initiator() {
    mkdir -p /etc/iscsi /var/lib/iscsi /run/lock/iscsi
    # The daemon looks up who speaks to it.
    echo root:x:0:0:root:/:/bin/sh >/etc/passwd
    echo InitiatorName=$INITIATOR >/etc/iscsi/initiatorname.iscsi
    printf '%s\n' node.startup=manual "$@" | sed 's/=/ = /' >/etc/iscsi/iscsid.conf
    iscsid
    discover
}

# Asks for targets anew: what was known of them is forgotten. Words are options of iscsiadm.
discover() {
    found=$(iscsiadm -m discovery -t sendtargets -p $PORTAL "$@")
}

# nodes NAME...: as many initiators in this machine, each with a name of its own; `login -I NAME` is one's session. They
# are one open-iscsi: the kernel speaks of iSCSI in its first network namespace only, so there is no second one.
nodes() {
    for name; do
        iscsiadm -m iface -I $name -o new
        iscsiadm -m iface -I $name -o update -n iface.initiatorname -v $INITIATOR-$name
        iscsiadm -m node -T $IQN -p $PORTAL,1 -I $name -o new
    done
}

# login WORD...: logs in to our target, and waits for its first disk; the session is $session.
login() {
    before=$(sessions)
    iscsiadm -m node -T $IQN -p $PORTAL "$@" --login
    session=
    for name in $(sessions); do
        case " $(echo $before) " in
        *" $name "*) ;;
        *) session=$name ;;
        esac
    done
    [ -n "$session" ] || fail "iscsiadm made no session"
    wait_for 30 has_luns 0
    disk=$(lun 0)
}

sessions() {
    ls /sys/class/iscsi_session
}

# has_luns NUMBER...: Linux looks at several logical units at once, and has made the disks of all of these.
has_luns() {
    for unit; do
        lun "$unit" || return 1
    done
}

# lun NUMBER: the disk of $session that is this logical unit, once it can be opened.
lun() {
    for path in /sys/class/iscsi_session/$session/device/target*/*:"$1"/block/*; do
        was_read "${path##*/}" || return 1
        echo "/dev/${path##*/}"
    done
}

# was_read NAME: Linux has looked for partitions on the disk, so others can open it. Its node is there a moment before
# that, and who opens it then is told ENXIO.
was_read() {
    read -r reads rest <"/sys/block/$1/stat" && [ "$reads" -gt 0 ]
}

# sg DISK: the same disk, for commands that go past Linux's cache. Modules: sg.
sg() {
    for path in /sys/block/"${1##*/}"/device/scsi_generic/*; do
        echo "/dev/${path##*/}"
    done
}

logout() {
    iscsiadm -m node -T $IQN -p $PORTAL "$@" --logout
}

# agreed NAME: a parameter of $session or of its connection, as Linux has it.
agreed() {
    cat /sys/class/iscsi_session/$session/"$1" 2>/dev/null ||
        cat /sys/class/iscsi_connection/connection"${session#session}":0/"$1"
}

# session_is STATE: what Linux thinks of $session.
session_is() {
    [ "$(cat /sys/class/iscsi_session/$session/state)" = "$1" ]
}

# measured URI WORD...: a verified `fabrix bench` of the disk; it must have checked blocks, and none may be wrong.
measured() {
    fabrix bench "$@" --verify --allow-write -o json >$WORK/bench.json 2>$WORK/bench.err ||
        fail "\`fabrix bench $*\` ended with $?: $(cat $WORK/bench.err)"
    verified $WORK/bench.json
}

# measured_through_gateway URI WORD...: our target exports the disk over NVMe/TCP, and `measured` runs with these words there.
measured_through_gateway() {
    fabrix serve "$1" --nqn $NQN.again --listen nvme+tcp://127.0.0.1 --allow any >/tmp/gate.out 2>/tmp/gate.err &
    gate=$!
    shift
    wait_for 30 fabrix discover nvme+tcp://127.0.0.1:4420
    measured nvme+tcp://127.0.0.1 "$@"
    kill $gate
    wait $gate || fail "the gateway ended with $?: $(cat /tmp/gate.err)"
}

# bench_begins URI WORD...: `fabrix bench` writes and verifies random blocks meanwhile. Its process is $bench.
bench_begins() {
    fabrix bench "$@" --rw randrw --size 16M --verify --allow-write -o json >$WORK/bench.json 2>$WORK/bench.err &
    bench=$!
}

bench_goes_on() {
    kill -0 $bench || fail "the bench has ended: $(cat $WORK/bench.err)"
}

# bench_comes_back TIMES: until the bench has connected again so often, or more often.
bench_comes_back() {
    tries=600
    until [ "$(grep -c 'connected again' $WORK/bench.err)" -ge "$1" ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "the bench has not connected again: $(cat $WORK/bench.err /tmp/serve.err)"
        sleep 0.1
    done
}

# bench_ends TIMES: the time of the bench ends. All blocks were right, and it has connected again so often.
bench_ends() {
    wait $bench || fail "the bench ended with $?: $(cat $WORK/bench.err)"
    verified $WORK/bench.json
    is "how often it came back" "$(grep -c 'connected again' $WORK/bench.err)" "$1"
}

# Ends the bench before its time is over. All blocks were right until then.
bench_is_interrupted() {
    kill -INT $bench
    wait $bench || contains "the bench" "$(cat $WORK/bench.err)" "interrupted: what was measured until then is shown"
    is "errors of the bench" "$(number errors $WORK/bench.json)" 0
    [ "$(number blocks_checked $WORK/bench.json)" -gt 0 ] || fail "no block was checked"
}

# not_opened URI PART...: a bench of the disk ends with 3, and its sentence has these parts.
not_opened() {
    asked=$1
    shift
    ends_with 3 fabrix bench "$asked" --number-ios 10
    contains "what $asked ends with" "$said" "$@"
}

# verified FILE: the JSON of a bench says that blocks were checked, that none is wrong, and that no I/O failed.
verified() {
    is "total_err of $1" "$(number total_err "$1")" 0
    # One in the job, one in what was verified.
    is "errors of $1" "$(number errors "$1")" 0
    [ "$(number blocks_checked "$1")" -gt 0 ] || fail "no block of $1 was checked"
    contains "$1" "$(cat "$1")" '"ended_early": null' '"first_error": null'
}

# number KEY FILE: the first number of that name in a JSON of ours.
number() {
    sed -n "s/^ *\"$1\": \([0-9]*\),*$/\1/p" "$2" | head -n 1
}

# The other target: the kernel's own, on a port of its own, over $TRANSPORT. Modules: nvmet-tcp or nvmet-rdma, configfs.
NVMET_NQN=nqn.2026-01.io.fabrix:kernel
NVMET_PORT=4421
nvmet=/sys/kernel/config/nvmet

# nvmet_serve DEVICE...: the kernel exports these as namespaces 1, 2, 3, ... to any host. Their identities are always
# the same, else they were other disks when they are made again.
nvmet_serve() {
    mkdir $nvmet/subsystems/$NVMET_NQN
    echo 1 >$nvmet/subsystems/$NVMET_NQN/attr_allow_any_host
    nsid=0
    for device; do
        nsid=$((nsid + 1))
        mkdir $nvmet/subsystems/$NVMET_NQN/namespaces/$nsid
        echo "$device" >$nvmet/subsystems/$NVMET_NQN/namespaces/$nsid/device_path
        echo 5ce2a5f0-0000-4000-8000-00000000000$nsid >$nvmet/subsystems/$NVMET_NQN/namespaces/$nsid/device_uuid
        echo 1 >$nvmet/subsystems/$NVMET_NQN/namespaces/$nsid/enable
    done
    mkdir $nvmet/ports/1
    echo $TRANSPORT >$nvmet/ports/1/addr_trtype
    echo ipv4 >$nvmet/ports/1/addr_adrfam
    echo $ADDRESS >$nvmet/ports/1/addr_traddr
    echo $NVMET_PORT >$nvmet/ports/1/addr_trsvcid
    nvmet_link
}

# Opens the port of the kernel's target, and closes it: with its last subsystem it stops to listen.
nvmet_link() {
    ln -s $nvmet/subsystems/$NVMET_NQN $nvmet/ports/1/subsystems/$NVMET_NQN
}

nvmet_unlink() {
    rm $nvmet/ports/1/subsystems/$NVMET_NQN
}

# How often the kernel's target has made a controller.
nvmet_controllers() {
    dmesg | grep -c "creating nvm controller"
}

nvmet_made_more_than() {
    [ "$(nvmet_controllers)" -gt "$1" ]
}

# Removes all that nvmet_serve has made.
nvmet_remove() {
    nvmet_unlink
    rmdir $nvmet/subsystems/$NVMET_NQN/namespaces/* $nvmet/subsystems/$NVMET_NQN $nvmet/ports/1
}

# The kernel's iSCSI target. Modules: target_core_mod target_core_file iscsi_target_mod configfs crc32c_generic. It
# complains of each of its other back ends: "Unable to load target_core...".
LIO_IQN=iqn.2026-01.org.example:lio
lio=/sys/kernel/config/target
lio_group=$lio/iscsi/$LIO_IQN/tpgt_1

# lio_serve COUNT: so many files of 32 MiB as logical units 0, 1, ... for every initiator, without a proof.
lio_serve() {
    mkdir -p $lio_group/np/$PORTAL
    number=0
    while [ $number -lt $1 ]; do
        store=$lio/core/fileio_0/disk$number
        mkdir -p $store
        echo "fd_dev_name=/dev/shm/lio$number,fd_dev_size=33554432" >$store/control
        echo 5ce2a5f0-0000-4000-8000-00000000000$number >$store/wwn/vpd_unit_serial
        echo 1 >$store/enable
        mkdir $lio_group/lun/lun_$number
        ln -s $store $lio_group/lun/lun_$number/disk
        number=$((number + 1))
    done
    echo 0 >$lio_group/attrib/authentication
    echo 1 >$lio_group/attrib/generate_node_acls
    echo 1 >$lio_group/attrib/cache_dynamic_acls
    echo 0 >$lio_group/attrib/demo_mode_write_protect
    echo 1 >$lio_group/enable
}

# A disk of 64 MiB in memory that the kernel makes, of 4096-byte blocks, as /dev/nullb0; with words of configfs
# like `cache_size=64`. Modules: null_blk,nr_devices=0 configfs.
nullb=/sys/kernel/config/nullb/nullb0
null_blk() {
    mkdir $nullb
    for word in memory_backed=1 size=64 blocksize=4096 queue_mode=2 "$@"; do
        echo "${word#*=}" >"$nullb/${word%%=*}"
    done
    echo 1 >$nullb/power
}

# fio_verifies DISK DEPTH BLOCK: fio writes 4 MiB and verifies them while it writes. Tools: fio.
fio_verifies() {
    fio --name=verified --filename="$1" --direct=1 --ioengine=libaio --iodepth="$2" --bs="$3" --rw=randwrite --size=4M \
        --verify=crc32c --verify_fatal=1 --verify_backlog=64 --randrepeat=0 >fio.out 2>&1 ||
        fail "fio with $3 at depth $2: $(cat fio.out /tmp/serve.err)"
    contains fio "$(cat fio.out)" "err= 0"
}

# load DISK NAMES: fio writes and verifies until it is told to stop. Its process is $load. NAMES is a pattern: Linux
# counts the answers at the disks or paths of these names in /sys/block. Tools: fio.
load() {
    load_names=$2
    fio --name=load --filename="$1" --direct=1 --ioengine=libaio --iodepth=16 --bs=4k-64k --rw=randwrite --size=16M \
        --time_based --runtime=300 --verify=crc32c --verify_fatal=1 --verify_backlog=16 >/tmp/load.out 2>&1 &
    load=$!
}

# Reads and writes that were answered.
load_answers() {
    cat /sys/block/$load_names/stat | awk '{all += $1 + $5} END {print all}'
}

load_goes_on() {
    kill -0 $load || fail "the load has ended: $(cat /tmp/load.out)"
    answered=$(load_answers)
    wait_for 60 load_was_answered
}

load_was_answered() {
    [ "$(load_answers)" -gt "$answered" ]
}

# The load ends: the caller has told it to, or its disk is gone. All blocks that it has verified were right.
load_was_right() {
    wait $load || true
    not grep -q "verify:" /tmp/load.out || fail "wrong data: $(cat /tmp/load.out)"
}

# write_long DEVICE: verified direct writes of 4 MiB, sixteen at a time, from small pages and from mapped ones, which may
# be large.
write_long() {
    for memory in malloc mmap; do
        fio --name=long --filename="$1" --direct=1 --ioengine=libaio --iodepth=16 --bs=4M --rw=write --size=128M \
            --iomem=$memory --verify=crc32c --verify_fatal=1 >fio.out 2>&1 || fail "fio: $(cat fio.out)"
        contains fio "$(cat fio.out)" "err= 0"
        grep -E "WRITE|READ" fio.out
    done
}

# links_away COUNT: a network namespace `away`, and links to it: near1 with 10.0.1.2 here, far1 with 10.0.1.1 there, and so
# on. Modules: veth. Tools: ip.
links_away() {
    ip netns add away
    link=0
    while [ $link -lt "$1" ]; do
        link=$((link + 1))
        ip link add near$link type veth peer name far$link netns away
        ip addr add 10.0.$link.2/24 dev near$link
        ip link set near$link up
        ip netns exec away ip addr add 10.0.$link.1/24 dev far$link
        ip netns exec away ip link set far$link up
    done
}

# RDMA without a network adapter for it: soft-RoCE on a network device of its own. Modules: rdma_rxe crc32_generic
# rdma_ucm dummy. Tools: ip rdma libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so. The kernel complains that it does not
# know how fast such a device is: "speed is unknown". crc32_generic is asked for by name when a link is added.
RDMA=10.8.0.1
RDMA_PORT=7174
PROVIDER=/etc/libibverbs.d/rxe.driver

# Makes the network device and rxe0. A maximum of 9000 bytes gives RDMA packets of 4096.
rdma_up() {
    mkdir -p ${PROVIDER%/*}
    echo driver rxe >$PROVIDER
    ip link add d0 type dummy
    ip link set d0 address 02:00:00:00:00:01
    ip addr add $RDMA/24 dev d0
    ip link set d0 mtu 9000 up
    rdma_link
}

# Makes rxe0. What nobody has used yet is in $unused, with the number of the device, which is another each time.
rdma_link() {
    rdma link add rxe0 type rxe netdev d0
    wait_for 10 test -c /dev/infiniband/uverbs0
    unused=$(rdma res show)
}

# Nothing of ours is left on the device, and no message has ever come before its receive was posted.
rdma_unused() {
    wait_for 10 rdma_is_unused
    all_received "the end"
}

# all_received STEP: up to this step every message has found a receive that was posted before.
all_received() {
    is "messages without a receive up to $1" "$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_rnr_err)" 0
}

rdma_is_unused() {
    used=$(rdma res show)
    [ "$used" = "$unused" ]
}

# rdma_unused_by PROGRAM: as rdma_unused, where the kernel itself has used the device too.
rdma_unused_by() {
    wait_for 10 rdma_has_none_of "$1"
    all_received "the end"
}

rdma_has_none_of() {
    for kind in cm_id qp cq mr pd; do
        rdma res show $kind | grep -q "comm $1" && return 1
    done
    return 0
}

# Somebody waits for RDMA connections.
rdma_listens() {
    rdma res show cm_id | grep -q LISTEN
}

# Starts our side of rping with these words, and waits until it listens. Its process is $server.
ping_serve() {
    ping_serve_at $RDMA "$@"
}

# ping_serve_at ADDRESS WORD...
ping_serve_at() {
    address=$1
    shift
    : >/tmp/ping.out
    rdma-ping serve $address:$RDMA_PORT "$@" >/tmp/ping.out 2>&1 &
    server=$!
    wait_for 10 grep -q listening /tmp/ping.out
}

# Waits until the server has ended as it should.
ping_served() {
    wait $server || fail "the server ended with $?: $(cat /tmp/ping.out)"
}

# counted DISK TARGET: instructions of an I/O of fio for each kind of load, in the files TARGET.KIND. The disk has 16 MiB.
# Tools: fio.
counted() {
    # A disk may answer without its memory where nobody has written.
    dd if=/dev/urandom of="$1" bs=1M count=16 oflag=direct 2>/dev/null
    for kind in read-4k-1 read-4k-16 write-4k-1 write-4k-16 read-128k-1 write-128k-1; do
        depth=${kind##*-} rest=${kind%-*}
        direction=${rest%-*} block=${rest#*-}
        case $block in
        4k) ios=3000 ;;
        *) ios=100 ;; # the disk has 128 such blocks, and fio ends after the last
        esac
        fio --name=counted --filename="$1" --direct=1 --ioengine=libaio --iodepth="$depth" --bs="$block" \
            --rw=rand"$direction" --size=16M --number_ios=$ios --randrepeat=1 --output-format=terse --terse-version=3 \
            >fio.out || fail "fio: $(cat fio.out)"
        # Milliseconds of the reads or of the writes. A millisecond is a million instructions.
        case $direction in
        read) ms=$(cut -d ';' -f 9 fio.out) ;;
        write) ms=$(cut -d ';' -f 50 fio.out) ;;
        esac
        echo $((ms * 1000 / ios)) >"$2.$kind"
    done
}

# counts: compares what counted has left of the targets `kernel` and `ours`.
counts() {
    for file in kernel.*; do
        kind=${file#kernel.}
        kernel=$(cat "$file") ours=$(cat ours."$kind")
        echo "$kind: thousand instructions: kernel $kernel, ours $ours, ratio $((ours * 100 / kernel)) %"
    done
}
