#!/bin/sh
# Keeps one device until its standard input ends: attach.sh KIND FOLDER MEMORY FABRIX URI CPU, where KIND is `fabrix`,
# `nbdfuse` or `local`. Prints the device, and takes it away at the end.
kind=$1
shift
folder=$1 memory=$2 fabrix=$3 uri=$4 cpu=$5 device=
# The device may outlive its reader: that must not end the shell.
trap "" PIPE
mkdir "$folder" && cd "$folder" || exit 1
# Waits while a command fails and the process that was started last lives.
until_works() {
    while kill -0 $! 2>/dev/null; do
        "$@" && return
        sleep 0.05
    done
    false
}
case $kind in
fabrix)
    # The process that keeps our disk is our child, so that its processor time counts as ours.
    export FABRIX_RUN_DIR="$folder"
    "$fabrix" attach "$uri" --as fuse --name perf --cores "$cpu" --foreground --devid-file device >/dev/null &
    begin() { until_works test -s device && read -r device <device; }
    end() {
        "$fabrix" detach perf --force
        wait
        rm -f device perf.* lock
    }
    ;;
nbdfuse)
    mkdir mount
    taskset --cpu-list "$cpu" nbdkit -f -U "$folder/socket" memory 1G >&2 &
    served=$!
    begin() {
        until_works test -S socket || return
        taskset --cpu-list "$cpu" nbdfuse mount/disk --unix "$folder/socket" >&2 &
        until_works test -e mount/disk && device=$(losetup --find --show --direct-io=on mount/disk)
    }
    end() {
        [ -z "$device" ] || losetup --detach "$device"
        umount mount
        kill "$served"
        wait
        rm -f socket
        rmdir mount
    }
    ;;
local)
    # The file has no name as soon as the loop driver has it, and goes with the device.
    begin() {
        truncate -s 1G "$memory" && device=$(losetup --find --show --direct-io=on "$memory")
        rm -f "$memory"
        [ -n "$device" ]
    }
    end() { [ -z "$device" ] || losetup --detach "$device"; }
    ;;
esac
if begin; then
    echo "$device"
    read -r _until_nobody_asks_any_more
fi
end
cd / && rmdir "$folder"
