# The measurements of the documents that compare networks, with disks over RDMA in the place of a network: StarWind's
# columns local, loopback, RDMA; stgt's sweep over iSER with one disk and two; ZetaVault's native against the fabric;
# CrystalDiskMark's numbers. Short, because an emulated machine measures nothing: what is shown is that they work.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy
# tools: ip rdma libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 600
# log: speed is unknown
# log: rxe0: .*non-flush error|do_complete: [0-9]+ callbacks suppressed
rdma_up

# profile WORD...: `fabrix bench` with these words; every I/O of every run went well. Its JSON is in /tmp/profile.json.
profile() {
    fabrix bench "$@" --allow-write -o json >/tmp/profile.json 2>/tmp/profile.err ||
        fail "\`fabrix bench $*\` ended with $?: $(tail -n 5 /tmp/profile.err)"
    not grep -E '"total_err": [1-9]' /tmp/profile.json || fail "\`fabrix bench $*\` has errors: $(cat /tmp/profile.err)"
}

serve ram:16M null:1T,block=512 null:1T,block=512 --listen nvme+rdma://$RDMA --listen iser://$RDMA --allow any
nvme=nvme+rdma://$RDMA:4420/$NQN
iser=iser://$RDMA:3260/$IQN
short="--runtime 50ms --ramp 20ms --size 8M --count 1"
profile starwind ram:16M --loopback --against $nvme/1 --against $iser/0 $short
contains "the disks of starwind" "$(cat /tmp/profile.json)" '"disk": "ram:16M"' "\"disk\": \"$nvme/1\"" "\"disk\": \"$iser/0\""
profile stgt $iser/1 --quick
profile stgt $iser/1 $iser/2 --quick
contains "the disks of stgt" "$(cat /tmp/profile.json)" "$iser/1" "$iser/2"
profile zetavault ram:16M --against $nvme/1 --against $iser/0 $short
contains "the disks of zetavault" "$(cat /tmp/profile.json)" "\"disk\": \"$nvme/1\"" "\"disk\": \"$iser/0\""
profile cdm $nvme/1 --runtime 50ms --size 8M
stop
rdma_unused_by fabrix
