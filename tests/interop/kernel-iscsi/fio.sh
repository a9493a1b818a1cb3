# fio verifies with crc32c what it wrote, direct, at depths of 1 to 64: within a command, unasked, by R2T, and with
# header and data digests; digests that are agreed on are on.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm fio
# seconds: 240
# log: Power-on or device reset occurred
serve_iscsi ram:64M ram:64M,block=4096

# verified_fio DISK DEPTH BLOCK
verified_fio() {
    fio --name=verified --filename="$1" --direct=1 --ioengine=libaio --iodepth="$2" --bs="$3" --rw=randwrite --size=4M \
        --verify=crc32c --verify_fatal=1 --verify_backlog=64 --randrepeat=0 >fio.out 2>&1 || fail "fio: $(cat fio.out)"
    contains fio "$(cat fio.out)" "err= 0"
}

# set NAME VALUE: what the initiator offers at its next login.
set_key() {
    iscsiadm -m node -T $IQN -p $PORTAL -o update -n "$1" -v "$2"
}

# agreed NAME: a parameter of the session or its connection, as Linux has it.
agreed() {
    cat /sys/class/iscsi_session/$session/"$1" 2>/dev/null ||
        cat /sys/class/iscsi_connection/connection"${session#session}":0/"$1"
}

initiator
login
wait_for 30 has_luns 0 1
one=$(lun 0) two=$(lun 1)
is "the header digest" "$(agreed header_digest)" 0
is "ImmediateData" "$(agreed immediate_data)" 1
for depth in 1 4 16 64; do verified_fio $one $depth 4k; done
verified_fio $one 8 128k
verified_fio $two 32 16k
verified_fio $two 4 1m
logout

# Digests, of each kind alone and both, and an initiator that would rather have none but takes them.
for digests in "CRC32C None" "None CRC32C" "CRC32C CRC32C" "CRC32C,None None,CRC32C"; do
    header=${digests% *} data=${digests#* }
    set_key 'node.conn[0].iscsi.HeaderDigest' $header
    set_key 'node.conn[0].iscsi.DataDigest' $data
    login
    wait_for 30 has_luns 0 1
    [ "${header%,*}" = None ] && expected=0 || expected=1
    is "the header digest" "$(agreed header_digest)" $expected
    [ "${data%,*}" = None ] && expected=0 || expected=1
    is "the data digest" "$(agreed data_digest)" $expected
    verified_fio $(lun 0) 32 4k-64k
    verified_fio $(lun 1) 4 256k
    logout
done

# No data before it is asked for, in the smallest pieces that there are.
set_key node.session.iscsi.InitialR2T Yes
set_key node.session.iscsi.ImmediateData No
set_key node.session.iscsi.FirstBurstLength 4096
set_key node.session.iscsi.MaxBurstLength 16384
set_key 'node.conn[0].iscsi.MaxRecvDataSegmentLength' 4096
login
wait_for 30 has_luns 0 1
is "InitialR2T" "$(agreed initial_r2t)" 1
is "ImmediateData" "$(agreed immediate_data)" 0
is "MaxBurstLength" "$(agreed max_burst_len)" 16384
verified_fio $(lun 0) 32 4k-64k
verified_fio $(lun 1) 4 256k
logout
stop
