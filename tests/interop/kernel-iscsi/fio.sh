# fio verifies with crc32c what it wrote, direct, at depths of 1 to 64: within a command, unasked, by R2T, and with
# header and data digests; digests that are agreed on are on.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm fio
# seconds: 240
# log: Power-on or device reset occurred
serve_iscsi ram:64M ram:64M,block=4096

# set NAME VALUE: what the initiator offers at its next login.
set_key() {
    iscsiadm -m node -T $IQN -p $PORTAL -o update -n "$1" -v "$2"
}

initiator
login
wait_for 30 has_luns 0 1
one=$(lun 0) two=$(lun 1)
is "the header digest" "$(agreed header_digest)" 0
is "ImmediateData" "$(agreed immediate_data)" 1
for depth in 1 4 16 64; do fio_verifies $one $depth 4k; done
fio_verifies $one 8 128k
fio_verifies $two 32 16k
fio_verifies $two 4 1m
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
    fio_verifies $(lun 0) 32 4k-64k
    fio_verifies $(lun 1) 4 256k
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
fio_verifies $(lun 0) 32 4k-64k
fio_verifies $(lun 1) 4 256k
logout
stop
