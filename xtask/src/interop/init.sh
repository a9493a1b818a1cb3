#!/usr/bin/busybox sh
# The first program of a guest: sets up what every Linux has, runs the script, says how it ended, and ends the machine.
# Lines that begin with "@@" are for the harness: "@@begin", "@@result N", "@@log LINE" for each complaint of the kernel,
# "@@end"; and "@@outside WORDS" of a script, for what is to happen to the disk that the guest has from outside.
export PATH=/usr/bin:/usr/busybox HOME=/tmp
/usr/bin/busybox mkdir -p /usr/busybox
/usr/bin/busybox --install -s /usr/busybox
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug 2>/dev/null
ifconfig lo 127.0.0.1 up
hostname guest
echo nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555 >/etc/nvme/hostnqn
echo 11111111-2222-4333-8444-555555555555 >/etc/nvme/hostid
echo 11111111222243338444555555555555 >/etc/machine-id
failed=
while read -r module; do
    if [ -n "$module" ]; then
        # shellcheck disable=SC2046
        modprobe $(echo "$module" | tr ',' ' ') || failed=yes
    fi
done </interop/modules
# Configfs is a module too: it can be mounted when somebody has loaded it.
mount -t configfs configfs /sys/kernel/config 2>/dev/null
# A machine with a disk of its own starts from there, once something is installed on it.
disk=$(sed -n 's/.* root=\([^ ]*\).*/\1/p' /proc/cmdline)
if [ -n "$disk" ] && [ ! -e /installed ] && mount -t ext4 "$disk" /mnt 2>/dev/null; then
    exec switch_root /mnt /init
fi
echo "interop: the script begins" >/dev/kmsg
if [ -n "$failed" ]; then
    echo "a module cannot be loaded"
    result=1
else
    echo "@@begin"
    # Not busybox's: that one takes its own applets for programs.
    cd /tmp && dash -eu -c '. /interop/lib.sh; . /interop/script' </dev/null 2>&1
    result=$?
fi
# Warnings and worse since the script began, but for those that it expects.
dmesg -r | sed '1,/interop: the script begins/d' | grep -E '^<[0-4]>' | grep -vEf /interop/log | tail -n 60 | sed 's/^/@@log /'
if [ "$result" != 0 ]; then
    dmesg | sed '1,/interop: the script begins/d' | tail -n 60 | sed 's/^/@@dmesg /'
fi
echo "@@result $result"
echo "@@end"
sync
poweroff -f
