# Linux discovers us on port 4420 and on 8009, connects to all that it finds there, and lists two disks.
# modules: nvme-tcp
# tools: nvme
# run: core
serve ram:16M ram:8M,block=4096 -l nvme+tcp://127.0.0.1:4420 -l nvme+tcp://127.0.0.1:8009

for port in 4420 8009; do
    log=$(nvme discover -t tcp -a 127.0.0.1 -s $port)
    contains "the log at $port" "$log" "$NQN" "trtype:  tcp" "traddr:  127.0.0.1" "trsvcid: 4420" "nvme subsystem"
done

nvme connect-all -t tcp -a 127.0.0.1 -s 8009
wait_for 30 has_disks 1 2
contains "nvme list" "$(nvme list)" "Fabrix" "16.78" "8.39" "512   B" "4 KiB"
contains "nvme list-subsys" "$(nvme list-subsys)" "$NQN" "tcp" "live"
disconnect
refused disk_of 1
stop
