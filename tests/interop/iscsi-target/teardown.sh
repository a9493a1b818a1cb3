# The connections of our initiator to the kernel's iSCSI target (LIO) are torn down, and the target closes its portal
# group and opens it again, under verified load: the initiator comes back each time, and not one block is wrong.
# modules: target_core_mod target_core_file iscsi_target_mod configfs crc32c_generic tcp_diag
# tools: ss
# seconds: 180
# log: Unable to (load target_core|locate Target Portal Group)|iSCSI Login negotiation failed|tcp_sendpage.. failure
# log: Exiting Time2Retain handler because session_reinstatement=1
lio_serve 1
bench_begins iscsi://$PORTAL/$LIO_IQN/0 --bs 8k --iodepth 16 --runtime 200s
is_there() {
    ss -Htn state established dst $ADDRESS dport = ${PORTAL#*:} | grep -q .
}

wait_for 30 is_there
times=0
while [ $times -lt 10 ]; do
    sleep 0.5
    bench_goes_on
    end_sockets dst $ADDRESS dport = ${PORTAL#*:}
    times=$((times + 1))
    bench_comes_back $times
done
while [ $times -lt 13 ]; do
    sleep 0.5
    bench_goes_on
    echo 0 >$lio_group/enable
    sleep 0.5
    echo 1 >$lio_group/enable
    times=$((times + 1))
    bench_comes_back $times
done
sleep 1
bench_goes_on
bench_is_interrupted
echo 0 >$lio_group/enable
