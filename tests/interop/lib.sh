# What the scripts share. Runs in the guest, in dash, under `set -eu`; nothing here knows a single script.

NQN=nqn.2026-01.io.fabrix:disks
ADDRESS=127.0.0.1
PORT=4420

# Says why, and ends the script.
fail() {
    echo "FAILED: $*"
    exit 1
}

# is WHAT FOUND EXPECTED
is() {
    [ "$2" = "$3" ] || fail "$1 is \`$2\`, not \`$3\`"
}

# contains WHAT TEXT PART...
contains() {
    what=$1 text=$2
    shift 2
    for part; do
        case $text in
        *"$part"*) ;;
        *) fail "$what does not say \`$part\`: $text" ;;
        esac
    done
}

# Fails unless the command fails; what it printed is in $refusal.
refused() {
    if refusal=$("$@" 2>&1); then
        fail "\`$*\` was expected to fail, and printed: $refusal"
    fi
}

not() {
    ! "$@"
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
    tries=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "\`$*\` did not come true in time"
        sleep 0.1
    done
}

# Starts `fabrix serve` with these words, and waits until it listens. Its process is $target.
serve() {
    : >/tmp/serve.out
    fabrix serve "$@" -o json >/tmp/serve.out 2>/tmp/serve.err &
    target=$!
    wait_for 30 serves_or_ended
    kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
}

serves_or_ended() {
    grep -q nvme_connect /tmp/serve.out || ! kill -0 $target
}

# Ends the target as a user does.
stop() {
    kill $target
    wait $target || fail "the target ended with $?: $(cat /tmp/serve.err)"
}

# connect WORD...: nvme connect to our subsystem, and wait for the namespaces. The controller is $ctrl.
connect() {
    before=$(ls /sys/class/nvme)
    nvme connect -t tcp -a $ADDRESS -s $PORT -n $NQN "$@"
    ctrl=
    for name in $(ls /sys/class/nvme); do
        case " $(echo $before) " in
        *" $name "*) ;;
        *) ctrl=$name ;;
        esac
    done
    [ -n "$ctrl" ] || fail "nvme connect made no controller"
    wait_for 30 has_namespace
}

has_namespace() {
    disk=$(disk_of 1) && [ -b "$disk" ]
}

# The block device of a namespace of our subsystem.
disk_of() {
    for name in $(ls /sys/block); do
        case $name in
        nvme*c*n*) ;;
        nvme*)
            if [ "$(cat "/sys/block/$name/nsid")" = "$1" ]; then
                echo "/dev/$name"
                return
            fi
            ;;
        esac
    done
    return 1
}

disconnect() {
    nvme disconnect -n $NQN >/dev/null
}

# queue NAME of a disk: its limit, as Linux has understood it.
queue() {
    cat "/sys/block/${1##*/}/queue/$2"
}

# controller_is STATE: what Linux thinks of $ctrl.
controller_is() {
    [ "$(cat /sys/class/nvme/$ctrl/state)" = "$1" ]
}
