# libiscsi's tools find our target and its disks, read what they are, set and take back the software write protection,
# and measure them; its test suite is in `cargo xtask conformance`.
# tools: iscsi-ls iscsi-inq iscsi-readcapacity16 iscsi-swp iscsi-perf
serve_iscsi ram:16M ram:32M,block=4096
uri=iscsi://$PORTAL/$IQN

# It counts to the last block, without it.
contains "iscsi-ls" "$(iscsi-ls -s iscsi://$PORTAL)" "Target:$IQN Portal:$PORTAL,1" \
    "Lun:0" "Size:15M" "Lun:1" "Size:31M"
contains "iscsi-inq" "$(iscsi-inq $uri/0)" "DIRECT_ACCESS" "Vendor:FABRIX" "SBC-3" "iSCSI"
contains "the list of pages" "$(iscsi-inq -e 1 -c 0 $uri/0)" "BLOCK_LIMITS" "DEVICE_IDENTIFICATION"
contains "the serial number" "$(iscsi-inq -e 1 -c 128 $uri/0)" "Unit Serial Number"
contains "the identification" "$(iscsi-inq -e 1 -c 131 $uri/0)" "$IQN" "NAA"
contains "the limits" "$(iscsi-inq -e 1 -c 176 $uri/0)" "maximum write same length:65535"
contains "the provisioning" "$(iscsi-inq -e 1 -c 178 $uri/0)" "lbpu:1"
contains "the capacity" "$(iscsi-readcapacity16 $uri/0)" \
    "Total size:16777216" "LOGICAL BLOCK LENGTH IN BYTES:512" "LBPRZ:1"
is "the size of the second" "$(iscsi-readcapacity16 -s $uri/1)" 33554432

contains "no protection" "$(iscsi-swp $uri/0)" "SWP:0"
iscsi-swp --swp=on $uri/0
contains "protection" "$(iscsi-swp $uri/0)" "SWP:1"
contains "the other disk" "$(iscsi-swp $uri/1)" "SWP:0"
iscsi-swp --swp=off $uri/0
contains "no protection" "$(iscsi-swp $uri/0)" "SWP:0"

iscsi-perf -t 3 -b 8 -m 16 -r $uri/0 >perf 2>&1 || fail "iscsi-perf: $(cat perf)"
contains "iscsi-perf" "$(cat perf)" "iops"

refused iscsi-inq $uri/7
refused iscsi-inq iscsi://$PORTAL/$IQN-x/0
stop
