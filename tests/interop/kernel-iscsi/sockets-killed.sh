# Connections are torn down 30 times under verified load; open-iscsi comes back each time and nothing is lost.
# modules: iscsi_tcp sd_mod crc32c_generic tcp_diag
# tools: iscsid iscsiadm ss
# seconds: 300
# log: connection[0-9]+:0: detected conn error
# log: session[0-9]+: session recovery timed out
# log: sd [0-9:]+: (Power-on or device reset occurred|\[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB))
serve_iscsi ram:32M
initiator
login
fabrix bench file:$disk --rw randrw --bs 8k --iodepth 16 --verify --allow-write --runtime 200s -o json \
    >bench.json 2>bench.err &
load=$!
cut=0
while [ $cut -lt 30 ]; do
    wait_for 60 session_is LOGGED_IN
    sleep 0.3
    end_sockets dst $ADDRESS dport = ${PORTAL#*:}
    cut=$((cut + 1))
    echo "cut $cut"
    wait_for 30 not session_is LOGGED_IN
    kill -0 $load || fail "the load ended: $(cat bench.err)"
done
wait_for 60 session_is LOGGED_IN
sleep 1
kill -INT $load
wait $load || contains "the load" "$(cat bench.err)" "interrupted: what was measured until then is shown"
is "errors of the load" "$(number errors bench.json)" 0
[ "$(number blocks_checked bench.json)" -gt 0 ] || fail "no block was checked"
is "the disk's name" "$(lun 0)" $disk
logout
stop
