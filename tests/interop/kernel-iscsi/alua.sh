# Two portals and multipathd (prio alua): Linux sees each access state within 2 s, a verified load moves to the better path,
# waits if none serves, and goes on when a portal is dropped and comes back.
# modules: iscsi_tcp sd_mod crc32c_generic dm_multipath dm_service_time scsi_dh_alua tcp_diag
# tools: iscsid iscsiadm fio ss udevadm scsi_id dmsetup multipathd libprioconst.so libprioalua.so libchecktur.so sg_rtpg sg_vpd
# seconds: 600
# kernel: own newer
# log: (sd|scsi) [0-9:]+: (Power-on or device reset occurred|Asymmetric access state changed|alua: )
# log: sd [0-9:]+: \[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB)
# log: t10\.[^:]*: no device found for rtpg
# log: device-mapper: multipath: [0-9:]+: (Failing|Reinstating) path
# log: connection[0-9]+:0: detected conn error|session[0-9]+: session recovery timed out|rejecting I/O to offline device
# log: I/O error, dev sd|callbacks suppressed|Buffer I/O error on dev sd
export FABRIX_API=unix:/run/fabrix.sock
SECOND=127.0.0.1:3261
serve ram:32M ram:16M,ana=2 -l iscsi://$PORTAL -l iscsi://$SECOND --api $FABRIX_API

# udev, which tells multipathd of disks and of their identities.
mkdir -p /etc/udev/rules.d
echo 'SUBSYSTEM=="block", KERNEL=="sd*", ENV{DEVTYPE}=="disk", IMPORT{program}="/usr/bin/scsi_id --export --whitelisted -d $devnode"' \
    >/etc/udev/rules.d/60-guest.rules
ln -s udevadm /usr/bin/systemd-udevd
systemd-udevd --daemon

initiator node.session.timeo.replacement_timeout=2
contains "the portals" "$found" "$PORTAL,1 $IQN" "$SECOND,2 $IQN"
login
first=${disk#/dev/}
PORTAL=$SECOND
login
second=${disk#/dev/}
wait_for 30 has_luns 0 1
other=$(lun 1)
udevadm settle

cat >/etc/multipath.conf <<'END'
defaults {
    find_multipaths no
    polling_interval 1
    max_polling_interval 1
    path_grouping_policy group_by_prio
    detect_prio no
    prio alua
    detect_checker no
    path_checker tur
    failback immediate
    no_path_retry queue
    missing_uev_wait_timeout 1
}
blacklist {
    devnode "^(ram|loop|vd)"
}
END
# Device-mapper's own nodes: udev has no rules for them here.
export DM_DISABLE_UDEV=1
multipathd -d -s >/tmp/multipathd.out 2>&1 &
daemon=$!

# path DISK: the priority that multipathd gives the path, or `failed`.
path() {
    multipathd show paths raw format "%d %t %p" | sed -n "s/^$1 *failed .*/failed/p; s/^$1 *active *\([0-9]*\).*/\1/p"
}

state_is() {
    [ "$(cat /sys/block/"$1"/device/access_state)" = "$2" ]
}

path_is() {
    [ "$(path "$1")" = "$2" ]
}

# is_state DISK STATE PATH: what Linux thinks of a path within 2 s, and multipathd, which looks once a second.
is_state() {
    wait_for 2 state_is "$1" "$2"
    tries=50
    until path_is "$1" "$3"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "to multipathd $1 is $(path "$1"), not $3: $(multipathd show topology) $(tail -n 20 /tmp/multipathd.out)"
        sleep 0.1
    done
}

# set_state GROUP STATE [PORT]
set_state() {
    fabrix ctl ana set "$1" "$2" ${3:+--listener iscsi://127.0.0.1:$3} >/tmp/ana.out
}

# written DISK: sectors that Linux has written over this path.
written() {
    read -r _ _ _ _ _ _ sectors _ <"/sys/block/$1/stat"
    echo "$sectors"
}

grows() {
    [ "$(written "$1")" -gt "$2" ]
}

rests() {
    before=$(written "$1")
    sleep 0.5
    [ "$(written "$1")" = "$before" ]
}

# moves_to DISK FROM: the load uses the one path, and not the other.
moves_to() {
    wait_for 10 grows "$1" "$(written "$1")"
    wait_for 10 rests "$2"
    wait_for 10 grows "$1" "$(($(written "$1") + 100))"
    kill -0 $load || fail "the load ended: $(cat fio.err)"
}

# has_map DISK: multipathd has made the disk of which this one is a path: $map.
has_map() {
    map=/dev/mapper/$(multipathd show paths raw format "%d %w" | sed -n "s/^$1 *\([^ ]*\) *$/\1/p")
    [ -b "$map" ]
}
tries=300
until has_map "$first"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] && kill -0 $daemon || fail "multipathd makes no disk: $(cat /tmp/multipathd.out; multipathd show paths)"
    sleep 0.1
done
contains "the groups" "$(sg_rtpg -d /dev/"$first")" "target port group id : 0x1" "target port group id : 0x2"
contains "the path" "$(sg_vpd -p di /dev/"$second")" "Target port group: 0x2" "Relative target port: 0x401"
is_state "$first" active/optimized 50
is_state "$second" active/optimized 50

fio --name=alua --filename=$map --rw=randwrite --size=16M --bs=8k --iodepth=8 --ioengine=libaio --direct=1 \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 --time_based --runtime=100 >fio.out 2>fio.err &
load=$!

# One path is not optimized, then none is: the load moves, and moves back.
for port in 3260 3261; do
    case $port in
    3260) here=$first there=$second ;;
    3261) here=$second there=$first ;;
    esac
    set_state 1 non-optimized $port
    is_state $here active/non-optimized 10
    moves_to $there $here
    set_state 1 inaccessible $port
    is_state $here unavailable failed
    is_state $there active/optimized 50
    moves_to $there $here
    set_state 1 optimized $port
    is_state $here active/optimized 50
done
is "the state of the other group" "$(cat /sys/block/"${other#/dev/}"/device/access_state)" active/optimized

# No path serves for a moment: the load waits, and hears of no error.
set_state 1 inaccessible
is_state $first unavailable failed
is_state $second unavailable failed
before="$(written $first) $(written $second)"
sleep 1
is "what is written without a path" "$(written $first) $(written $second)" "$before"
dd if=$other of=/dev/null bs=4096 count=16 iflag=direct 2>/dev/null || fail "the other group does not serve"
set_state 1 optimized
is_state $first active/optimized 50
wait_for 10 grows $first "$(written $first)"

# One portal is dropped, and comes back.
fabrix ctl listener remove iscsi://$SECOND >/dev/null
end_sockets dst $ADDRESS dport = 3261
wait_for 20 rests $second
wait_for 10 grows $first "$(($(written $first) + 100))"
fabrix ctl listener add iscsi://$SECOND >/dev/null
wait_for 60 session_is LOGGED_IN
is_state $second active/optimized 50
wait_for 30 grows $second "$(written $second)"

wait $load || fail "fio ended with $?: $(cat fio.err fio.out)"
contains fio "$(cat fio.out)" "err= 0"
kill $daemon
wait $daemon || true
dmsetup remove_all
iscsiadm -m node --logoutall=all
stop
