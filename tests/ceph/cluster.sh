# A cluster of Ceph on loopback: one monitor, one or more OSDs, a pool `rbd` with an image `disk` of 1 GiB.
#
#   cluster.sh up FOLDER [OSDS [ADDRESS]]   starts it, and prints the file of its configuration
#   cluster.sh down FOLDER                  ends what `up` has started, and removes the folder
#
# Root only: the daemons want to own their folders. Nothing outside FOLDER is touched. A monitor needs no manager for block
# storage. Three settings make the start short: the monitor's rounds (paxos_*, if MONITOR_INTERVAL and MONITOR_WAIT do not say
# otherwise), one protocol of messages, and few groups.
set -eu
verb=$1
folder=$2
osds=${3:-1}
address=${4:-127.0.0.1}
export CEPH_CONF=$folder/ceph.conf

# ended PID: waits until a process of ours is gone.
ended() {
    tries=100
    while [ -d "/proc/$1" ] && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        sleep 0.1
    done
}

down() {
    for file in "$folder"/run/*.pid; do
        [ -e "$file" ] || continue
        read -r pid <"$file"
        # The number may belong to another process by now.
        if grep -qa "$folder" "/proc/$pid/environ" 2>/dev/null; then
            kill -CONT "$pid" 2>/dev/null || true
            kill -KILL "$pid" 2>/dev/null || true
            ended "$pid"
        fi
    done
    rm -rf "$folder"
}

# daemon NAME COMMAND...: a daemon in the foreground, which outlives this script.
daemon() {
    name=$1
    shift
    setsid "$@" >"$folder/log/$name.out" 2>&1 </dev/null &
    echo $! >"$folder/run/$name.pid"
}

configuration() {
    cat >"$CEPH_CONF" <<END
[global]
fsid = $fsid
mon_host = v2:$address:$port
public_network = ${address%.*}.0/24
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
keyring = $folder/keyring
run_dir = $folder/run
admin_socket =
log_file = $folder/log/\$name.log
pid_file =
ms_bind_msgr1 = false
ms_bind_ipv6 = false
ms_bind_port_min = $((port + 1))
ms_bind_port_max = $((port + 90))
ms_async_op_threads = 1
osd_pool_default_size = $osds
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_class_load_list = *
osd_class_default_list = *
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data = $folder/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
paxos_propose_interval = ${MONITOR_INTERVAL:-0.05}
paxos_min_wait = ${MONITOR_WAIT:-0.02}
osd_data = $folder/osd.\$id
osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_block_create = true
osd_memory_target = 939524096
[client]
log_file =
END
}

monitor() {
    ceph-authtool --create-keyring "$folder/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool "$folder/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' >/dev/null
    monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:$address:$port]" "$folder/monmap" >/dev/null
    ceph-mon --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring" >"$folder/log/mkfs.out" 2>&1
    daemon mon ceph-mon -i a -f --public-addrv "[v2:$address:$port]"
    ceph --connect-timeout 60 mon stat >/dev/null
}

osd() {
    mkdir "$folder/osd.$1"
    uuid=$(cat /proc/sys/kernel/random/uuid)
    ceph osd new "$uuid" >/dev/null
    ceph auth get-or-create "osd.$1" mon 'allow profile osd' osd 'allow *' >"$folder/osd.$1/keyring"
    ceph-osd -i "$1" --mkfs --osd-uuid "$uuid" --keyring "$folder/osd.$1/keyring" >>"$folder/log/mkfs.out" 2>&1
    daemon "osd.$1" ceph-osd -i "$1" -f --keyring "$folder/osd.$1/keyring"
}

# are_up COUNT: so many OSDs serve.
are_up() {
    ceph osd stat | grep -q " $1 up"
}

up() {
    mkdir -p "$folder/run" "$folder/log" "$folder/mon"
    fsid=$(cat /proc/sys/kernel/random/uuid)
    port=$((20000 + $$ % 400 * 100))
    configuration
    monitor
    at=0
    while [ $at -lt "$osds" ]; do
        osd $at
        at=$((at + 1))
    done
    tries=600
    until are_up "$osds"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "the OSDs do not come: $(tail -n 5 "$folder"/log/osd.*.out)" >&2; exit 1; }
        sleep 0.1
    done
    ceph osd pool create rbd 8 >/dev/null 2>&1
    rbd pool init rbd
    rbd create --size 1G rbd/disk
    echo "$CEPH_CONF"
}

case $verb in
up) up ;;
down) down ;;
osd) daemon "osd.$3" ceph-osd -i "$3" -f --keyring "$folder/osd.$3/keyring" ;;
*) echo "cluster.sh up|down FOLDER" >&2; exit 2 ;;
esac
