# Linux keeps a discovery controller: it is told when the log changes, and a host that may connect no more has to go.
# modules: nvme-tcp
# tools: nvme
# log: nvme nvme[0-9]+: (starting error recovery|Reconnecting|failed|queue|Connect|Failed|I/O|rw|reading)
export FABRIX_API=unix:/run/fabrix.sock
serve ram:16M --api $FABRIX_API
nvme discover -t tcp -a 127.0.0.1 -s 4420 --persistent >/dev/null
discovery=
for name in $(ls /sys/class/nvme); do
    discovery=$name
done
[ -n "$discovery" ] || fail "no discovery controller stays"
contains "the controller" "$(cat /sys/class/nvme/$discovery/subsysnqn)" discovery

# The kernel hands the event to udev: NVME_AEN=0x70f002 is "discovery log page changed".
busybox uevent env >/tmp/events 2>&1 &
events=$!
wait_for 10 grep -q "^[^ ]* *15 *$events " /proc/net/netlink
fabrix ctl listener add nvme+tcp://127.0.0.1:4430 >/dev/null
wait_for 10 grep -q NVME_AEN=0x70f002 /tmp/events
log=$(nvme discover -d $discovery)
contains "the log" "$log" "trsvcid: 4420" "trsvcid: 4430"
: >/tmp/events
fabrix ctl listener remove nvme+tcp://127.0.0.1:4430 >/dev/null
wait_for 10 grep -q NVME_AEN=0x70f002 /tmp/events
log=$(nvme discover -d $discovery)
case $log in *4430*) fail "the log still names the port: $log" ;; esac

connect --ctrl-loss-tmo=600 --reconnect-delay=1
fabrix ctl allow nqn.2026-01.org.example:somebody-else >/dev/null
wait_for 10 not controller_is live
fabrix ctl allow any >/dev/null
wait_for 20 controller_is live
kill $events
nvme disconnect-all
stop
