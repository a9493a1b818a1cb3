# The kernel's iSER initiator (ib_iser, open-iscsi) at our target: discovery, what the login has agreed on, and data
# verified by fio, in the message of the command and by RDMA READ and WRITE. The same bytes come over iSCSI on TCP at the
# same address and port. libiscsi's tools over iser://.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy ib_iser iscsi_tcp sd_mod
# tools: ip rdma iscsid iscsiadm fio cmp iscsi-inq iscsi-perf libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# run: core
# kernel: own newer
# seconds: 300
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
# log: Power-on or device reset occurred
rdma_up
PORTAL=$RDMA:3260

serve ram:64M ram:64M,block=4096 --listen iser://$RDMA --listen iscsi://$RDMA --allow any
contains "the commands" "$(cat /tmp/serve.out)" "iscsiadm -m discovery -t sendtargets -p $PORTAL -I iser"
initiator
is "what is discovered over TCP" "$found" "$PORTAL,1 $IQN"
iscsiadm -m node -o delete
discover -I iser
is "what is discovered over RDMA" "$found" "$PORTAL,1 $IQN"

login -I iser
wait_for 30 has_luns 0 1
one=$(lun 0) two=$(lun 1)
contains "the session" "$(iscsiadm -m session)" "iser:"
is "InitialR2T" "$(agreed initial_r2t)" 1
is "ImmediateData" "$(agreed immediate_data)" 1
is "the header digest" "$(agreed header_digest)" 0
is "the data digest" "$(agreed data_digest)" 0
is "data in a message" "$(agreed max_xmit_dlength)" 8192
for depth in 1 16 64; do fio_verifies $one $depth 4k; done
fio_verifies $one 4 16k
fio_verifies $two 8 64k
fio_verifies $two 4 512k
dd if=/dev/urandom of=/tmp/rdma.bytes bs=1M count=8 2>/dev/null
dd if=/tmp/rdma.bytes of=$one bs=64k oflag=direct 2>/dev/null
logout -I iser

# What was written over RDMA is read over TCP, and the other way round.
discover -I default
login -I default
cmp -n 8388608 $disk /tmp/rdma.bytes || fail "TCP reads other bytes than RDMA has written"
dd if=/dev/urandom of=/tmp/tcp.bytes bs=1M count=8 2>/dev/null
dd if=/tmp/tcp.bytes of=$disk bs=64k oflag=direct 2>/dev/null
logout -I default
discover -I iser
login -I iser
dd if=$disk of=/tmp/rdma.bytes bs=1M count=8 iflag=direct 2>/dev/null
cmp /tmp/tcp.bytes /tmp/rdma.bytes || fail "RDMA reads other bytes than TCP has written"
logout -I iser

uri=iser://$PORTAL/$IQN
contains "iscsi-inq" "$(iscsi-inq $uri/0)" "DIRECT_ACCESS" "Vendor:FABRIX"
iscsi-perf -t 3 -b 8 -m 16 -r $uri/0 >perf 2>&1 || fail "iscsi-perf: $(cat perf)"
contains "iscsi-perf" "$(cat perf)" "iops"
refused iscsi-inq iser://$PORTAL/$IQN-x/0
stop
rdma_unused_by fabrix
