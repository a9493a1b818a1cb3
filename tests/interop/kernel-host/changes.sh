# Disks added, removed and resized while Linux is connected show at once, by event: no reconnect, no rescan by hand.
# modules: nvme-tcp
# tools: nvme
# run: core
truncate -s 16M /dev/shm/one /dev/shm/two
export FABRIX_API=unix:/run/fabrix.sock
serve file:/dev/shm/one,direct=off --api $FABRIX_API
connect
one=$(disk_of 1)
dmesg -c >/dev/null

size_is() { [ "$(cat /sys/block/${1##*/}/size)" = "$2" ]; }
gone() { ! disk_of $1; }

fabrix ctl namespace add file:/dev/shm/two,direct=off >/dev/null
wait_for 10 disk_of 2
two=$(disk_of 2)
dd if=/dev/urandom of=$two bs=1M count=1 oflag=direct 2>/dev/null
fabrix ctl namespace add ram:8M --nsid 7 >/dev/null
wait_for 10 disk_of 7
size_is $(disk_of 7) 16384 || fail "the new disk has another size"

fabrix ctl namespace resize 2 32M >/dev/null
wait_for 10 size_is $two 65536
dd if=/dev/urandom of=$two bs=1M seek=31 count=1 oflag=direct 2>/dev/null
truncate -s 48M /dev/shm/one
fabrix ctl namespace resize 1 >/dev/null
wait_for 10 size_is $one 98304

# A load on one disk does not notice what happens to the others.
fabrix bench file:$one --rw randrw --verify --allow-write --bs 8k --iodepth 4 --runtime 4s -o json >bench.json 2>bench.err &
load=$!
for round in 1 2 3; do
    fabrix ctl namespace remove 2 >/dev/null
    wait_for 10 gone 2
    fabrix ctl namespace add file:/dev/shm/two,direct=off --nsid 2 >/dev/null
    wait_for 10 disk_of 2
done
wait $load || fail "the verified load: $(cat bench.err)"
fabrix ctl namespace remove 7 >/dev/null
wait_for 10 gone 7
refused fabrix ctl namespace remove 7
contains "a removed disk" "$refusal" "there is no namespace 7"

case $(dmesg) in *econnect* | *"error recovery"*) fail "Linux has reconnected: $(dmesg)" ;; esac
contains show "$(fabrix ctl show)" "/dev/shm/one" "48M" "32M"
disconnect
stop
[ ! -e /run/fabrix.sock ] || fail "the socket is still there"
