# One of two disks does not answer writes for 40 seconds: Linux aborts them, resets the unit and logs in again, and the
# other disk of the same session goes on under a verified load.
# modules: iscsi_tcp sd_mod crc32c_generic tcp_diag
# tools: iscsid iscsiadm ss
# seconds: 240
# log: iscsi: |connection[0-9]+:0: |session[0-9]+: (target reset|session recovery)
# log: sd [0-9:]+: (Power-on or device reset occurred|\[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB))
# log: sd [0-9:]+: (device offlined|Device offlined|rejecting I/O)
# log: (I/O|critical [a-z]+) error, dev sd|Buffer I/O error|callbacks suppressed
serve_iscsi ram:32M,inject=delay:40s:write ram:32M
initiator
login
wait_for 30 has_luns 0 1
hung=$(lun 0) other=$(lun 1)
# Linux waits for 30 seconds otherwise.
echo 3 >/sys/block/${hung##*/}/device/timeout
fabrix bench file:$other --rw randrw --bs 8k --iodepth 16 --verify --allow-write --runtime 45s -o json \
    >bench.json 2>bench.err &
load=$!
dd if=/dev/zero of=$hung bs=4096 count=1 oflag=direct 2>/dev/null &
user=$!
does_not_answer() {
    grep -q "namespace 1: the disk does not answer" /tmp/serve.err
}
wait_for 30 does_not_answer
kill -0 $load || fail "the load ended: $(cat bench.err)"
session_is LOGGED_IN || fail "the abort was not answered: the session is $(cat /sys/class/iscsi_session/$session/state)"
# The session that replaces this one is let in while the write is still at the disk.
end_sockets dst $ADDRESS dport = ${PORTAL#*:}
wait_for 30 not session_is LOGGED_IN
wait_for 20 session_is LOGGED_IN
kill -0 $load || fail "the load ended: $(cat bench.err)"
wait $load || fail "the verified load: $(cat bench.err)"
verified bench.json
# The write is tried again or has failed; either way Linux does not wait for ever.
wait $user || true
dd if=$other of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null
logout
stop
