# Under verified load an OSD is stopped and goes on, is killed and comes back, and the whole cluster is gone for a minute: the
# requests wait, nothing is lost, the program keeps its memory, and an idle one takes no processor time.
# seconds: 400
serve_image rbd:rbd/disk
bench_begins $nvme --bs 16k --iodepth 64 --runtime 150s --fast-io-fail-tmo 300s
sleep 3
before=$(memory)
osd -STOP
sleep 10
bench_goes_on
after=$(memory)
[ $((after - before)) -lt 65536 ] || fail "the program grew from $before to $after KiB while an OSD stood still"
osd -CONT
sleep 3
osd -KILL
sleep 2
dash "$CLUSTER_SH" osd "$CLUSTER" 0
# All placement groups serve again: they wait 16 s for leases of the OSD's earlier life. An OSD of Ceph 16 that is stopped
# meanwhile waits for ever afterwards.
timeout 60 rados -p rbd bench 1 write -b 4096 >/dev/null || fail "the OSD does not come back"
bench_goes_on
every_daemon -STOP
sleep 60
bench_goes_on
every_daemon -CONT
# An OSD of Ceph 16 that stood still may wait for ever for a lease of its own (`waiting for readable`). It then answers the
# tools of Ceph no more than us, and is started again.
if ! timeout 20 rados -p rbd bench 1 write -b 4096 >/dev/null; then
    osd -KILL
    sleep 2
    dash "$CLUSTER_SH" osd "$CLUSTER" 0
    timeout 60 rados -p rbd bench 1 write -b 4096 >/dev/null || fail "the OSD does not come back from the minute"
fi
# The host may have given a connection up meanwhile: it has time limits of its own.
bench_is_right

ticks=$(processor_ticks)
sleep 3
idle=$(($(processor_ticks) - ticks))
[ $idle -lt 10 ] || fail "the idle program took $idle ticks of a hundredth second in three seconds"

# A cluster that is not there is given up.
sed 's/^mon_host.*/mon_host = v2:127.0.0.1:1/' "$CEPH_CONF" >dead.conf
ends_with 3 fabrix bench rbd:rbd/disk,conf="$PWD"/dead.conf --number-ios 1
contains "a cluster that is not there" "$said" "cannot connect to the Ceph cluster" "mon_host"
