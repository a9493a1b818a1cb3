# Who names a subsystem, host, controller or address that we do not serve gets the error that the kernel has for it.
# modules: nvme-tcp
# tools: nvme
# log: nvme nvme[0-9]+: Connect (command failed|Invalid Data Parameter|rejected|for subsystem)
# log: nvme nvme[0-9]+: failed to connect (queue|socket)
serve ram:16M --allow nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555

refused nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-01.io.fabrix:other
contains "a wrong NQN" "$refusal$(dmesg | tail -n 2)" "Connect Invalid"
refused nvme connect -t tcp -a 127.0.0.1 -s 4420 -n $NQN -q nqn.2026-01.org.example:stranger
contains "a host that is not allowed" "$refusal$(dmesg | tail -n 3)" "not allow"
refused nvme connect -t tcp -a 127.0.0.1 -s 4421 -n $NQN
contains "a wrong port" "$refusal" "refused"
# The stranger's discovery log does not name the subsystem.
log=$(nvme discover -t tcp -a 127.0.0.1 -s 4420 -q nqn.2026-01.org.example:stranger)
case $log in *"$NQN"*) fail "a stranger is told of the subsystem: $log" ;; esac
contains serve "$(cat /tmp/serve.err)" "nqn.2026-01.org.example:stranger"
connect
disconnect
stop
