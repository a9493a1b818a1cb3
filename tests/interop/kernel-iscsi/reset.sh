# sg_reset of the disk and of the target, with commands in flight: a verified load loses nothing and goes on.
# modules: iscsi_tcp sd_mod sg crc32c_generic
# tools: iscsid iscsiadm sg_reset
# seconds: 180
# log: sd [0-9:]+: (Power-on or device reset occurred|\[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB))
# log: iscsi: |connection[0-9]+:0: |session[0-9]+: (target reset|session recovery)
serve_iscsi ram:32M ram:16M
initiator
login
wait_for 30 has_luns 0 1
g=$(sg $disk)
fabrix bench file:$disk --rw randrw --bs 8k --iodepth 16 --verify --allow-write --runtime 15s -o json \
    >bench.json 2>bench.err &
load=$!
for round in 1 2 3; do
    for what in --device --target; do
        sleep 0.5
        # Alone: without the next harder reset where this one fails.
        sg_reset --no-esc $what $g || fail "$what in round $round ended with $?"
        wait_for 30 session_is LOGGED_IN
        kill -0 $load || fail "the load ended: $(cat bench.err)"
    done
done
wait $load || fail "the verified load: $(cat bench.err)"
verified bench.json
# Linux's software initiator has nothing of its own to reset.
refused sg_reset --no-esc --host $g
is "the session" "$(cat /sys/class/iscsi_session/$session/state)" LOGGED_IN
dd if=$disk of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null
logout
stop
