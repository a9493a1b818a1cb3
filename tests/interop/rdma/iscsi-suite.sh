# Each test of libiscsi's suite that passes over TCP passes over iSER at the same target too, or fails over iSER at Linux'
# own target as well: libiscsi's iSER does not tell how many bytes have come, and some tests crash it.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy target_core_mod target_core_file iscsi_target_mod ib_isert configfs
# tools: ip rdma iscsi-test-cu libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# seconds: 2400
# log: speed is unknown
# log: rxe0: .*|do_complete: [0-9]+ callbacks suppressed
# log: (iscsi-test-cu.*: segfault at|Code: )
# log: Unable to load target_core|(isert|iSCSI|TARGET_CORE|tx_data|rx_data|CHAP).*|.*iscsi.*
rdma_up

# passes TEST URI: the test passes, or says why it has nothing to test. What it says is in /tmp/said.
passes() {
    status=0
    timeout 60 iscsi-test-cu --dataloss --test $1 $2 >/tmp/said 2>&1 || status=$?
    kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
    [ $status -eq 0 ] && awk '$1 == "tests" && $3 == 1 && $4 == 1 {passed = 1} END {exit !passed}' /tmp/said
}

serve ram:64M,physical=512 --listen iser://$RDMA --listen iscsi://$RDMA --allow any
ours=$RDMA:3260/$IQN/0
PORTAL=$RDMA:3261
mkdir -p $lio_group/np/$PORTAL
echo 1 >$lio_group/np/$PORTAL/iser
lio_serve 1
all=0 failed=
for test in $(iscsi-test-cu --list | grep '^ALL\..*\.'); do
    all=$((all + 1))
    passes $test iser://$ours || failed="$failed $test"
done
[ $all -gt 200 ] || fail "the suite has $all tests only"
alone=
for test in $failed; do
    if passes $test iscsi://$ours && passes $test iser://$PORTAL/$LIO_IQN/0; then
        # Tests that crash libiscsi do not always do so.
        passes $test iser://$ours || alone="$alone $test $(grep -A 3 '^  Test: ' /tmp/said)"
    fi
done
[ -z "$alone" ] || fail "over iSER at our target alone:$alone; of those that failed:$failed"
stop
wait_for 10 rdma_has_none_of fabrix
