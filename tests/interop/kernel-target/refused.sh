# When the kernel's target does not let our host in, the host ends with 3 and a sentence that says what to do: nobody
# listens, no such subsystem, host not allowed, no such namespace.
# modules: nvmet nvmet-tcp brd,rd_nr=1,rd_size=65536 configfs
# log: nvmet: connect request for invalid subsystem
# log: nvmet: connect by host .* not allowed

# refuses WORD... -- PART...: the command ends with 3, on stderr alone, and its sentence has these parts.
refuses() {
    words=
    while [ "$1" != -- ]; do
        words="$words $1"
        shift
    done
    shift
    code=0
    $words >/tmp/said.out 2>/tmp/said.err || code=$?
    is "the exit code of \`$words\`" $code 3
    is "what \`$words\` printed" "$(cat /tmp/said.out)" ""
    contains "what \`$words\` said" "$(cat /tmp/said.err)" "$@"
    is "the lines that \`$words\` said" "$(wc -l </tmp/said.err)" 1
}

nvmet_serve /dev/ram0
there=nvme+tcp://$ADDRESS:$NVMET_PORT
nowhere=nvme+tcp://$ADDRESS:4999
me=nqn.2026-01.io.fabrix:interop

# The same sentence from whatever needs the disk.
for command in "fabrix bench --number-ios 10" "fabrix serve"; do
    refuses $command $nowhere/$NVMET_NQN/1 -- "$nowhere/$NVMET_NQN/1: " "Connection refused" "nothing listens there"
    refuses $command $there/$NVMET_NQN.wrong/1 -- "$there/$NVMET_NQN.wrong/1: " "there is no such subsystem" "discover"
    refuses $command $there/$NVMET_NQN/7 -- "$there/$NVMET_NQN/7: " "the subsystem has no namespace 7"
done
refuses fabrix discover $nowhere -- "$nowhere: " "Connection refused" "nothing listens there"

# A host that is not on the list is not let in, and does not see what is there.
echo 0 >$nvmet/subsystems/$NVMET_NQN/attr_allow_any_host
mkdir $nvmet/hosts/$me
ln -s $nvmet/hosts/$me $nvmet/subsystems/$NVMET_NQN/allowed_hosts/$me
for command in "fabrix bench --number-ios 10" "fabrix serve" "fabrix bench --number-ios 10 --hostnqn $me.other"; do
    refuses $command $there/$NVMET_NQN/1 -- "$there/$NVMET_NQN/1: " "does not allow this host" "host NQN"
done
case $(fabrix discover $there) in
*$NVMET_NQN*) fail "discovery shows the subsystem to a host that may not connect" ;;
esac
contains "the log" "$(fabrix discover $there --hostnqn $me)" $NVMET_NQN
fabrix bench --number-ios 10 $there/$NVMET_NQN/1 --hostnqn $me >/dev/null
