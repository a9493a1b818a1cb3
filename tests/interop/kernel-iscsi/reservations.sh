# Two initiators and a reservation between them: what each type keeps the other from, registered or not; releasing,
# preempting and clearing. A reservation outlives its session; one that is to outlive a loss of power outlives a target
# that is ended by kill -9, and others do not.
# modules: iscsi_tcp sd_mod sg crc32c_generic
# tools: iscsid iscsiadm sg_persist sg_turs
# log: reservation conflict|(I/O|critical nexus) error, dev sd|Buffer I/O error|callbacks suppressed
# log: sd [0-9:]+: (Power-on or device reset occurred|Parameters changed)
# log: sd [0-9:]+: \[sd[a-z]\] (tag|FAILED|Sense|Add\.|CDB)
# log: connection[0-9]+:0: detected conn error
# log: connect to .* failed
CONFLICT=24
FIRST_KEY=0xa1
SECOND_KEY=0xb2

# reserve DISK WORD...: a PERSISTENT RESERVE OUT that is done; reservation DISK: what there is, in $said.
reserve() {
    on=$1
    shift
    ends_with 0 sg_persist -n -o "$@" $on
}
reservation() {
    # What happened meanwhile is told once.
    sg_turs $1 >/dev/null 2>&1 || true
    ends_with 0 sg_persist -n -i -r $1
}

# port DISK: the initiator port that is registered, if there is one: a name and an ISID.
port() {
    ends_with 0 sg_persist -n -i -s $1
    echo "$said" | grep -o "$INITIATOR-second,i,0x[0-9a-f]*" || fail "no port is registered: $said"
}

writes() {
    dd if=/dev/urandom of=$1 bs=4096 count=1 oflag=direct 2>/dev/null
}
reads() {
    dd if=$1 of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
}

# may DISK read|write|nothing: so much and no more.
may() {
    case $2 in
    write) writes $1 && reads $1 || fail "$1 cannot be written" ;;
    read)
        refused writes $1
        reads $1 || fail "$1 cannot be read"
        ;;
    nothing)
        refused writes $1
        refused reads $1
        ;;
    esac
}

truncate -s 32M /dev/shm/disk
served="file:/dev/shm/disk,direct=off --state /tmp/state"
serve_iscsi $served
initiator
nodes first second
login -I first
first=$disk
login -I second
second=$disk
a=$(sg $first) b=$(sg $second)

# Each type: what a stranger may, and what one who has registered.
reserve $a -G -S $FIRST_KEY
for type in 1:read:read 3:nothing:nothing 5:read:write 6:nothing:write 7:read:write 8:nothing:write; do
    rest=${type#*:} type=${type%%:*}
    reserve $a -R -T $type -K $FIRST_KEY
    may $first write
    may $second ${rest%:*}
    reserve $b -I -S $SECOND_KEY
    may $second ${rest#*:}
    reservation $b
    case $type in
    7 | 8) contains "the reservation of type $type" "$said" "all registrants" ;;
    *) contains "the reservation of type $type" "$said" "$FIRST_KEY" ;;
    esac
    reserve $b -G -K $SECOND_KEY
    reserve $a -L -T $type -K $FIRST_KEY
    may $second write
done

# Held by the one, it is refused to the other, who preempts it and then has it; the first has no registration left.
reserve $a -R -T 3 -K $FIRST_KEY
reserve $b -I -S $SECOND_KEY
ends_with $CONFLICT sg_persist -n -o -R -T 3 -K $SECOND_KEY $b
reserve $b -P -T 3 -K $SECOND_KEY -S $FIRST_KEY
reservation $a
contains "the reservation" "$said" "$SECOND_KEY" "Exclusive Access"
may $first nothing
may $second write
ends_with $CONFLICT sg_persist -n -o -L -T 3 -K $FIRST_KEY $a

# A session that ends takes nothing with it, and only who registers can clear what it left. Who logs in anew has another
# ISID, and so is another initiator port, without a registration.
logout -I second
may $first nothing
port_before=$(port $a)
reserve $a -I -S $FIRST_KEY
reserve $a -C -K $FIRST_KEY
may $first write
login -I second
second=$disk b=$(sg $disk)
reserve $b -G -S $SECOND_KEY
port_after=$(port $b)
[ "$port_after" != "$port_before" ] || fail "both sessions were those of $port_before"
reserve $b -G -K $SECOND_KEY

# With APTPL it is there after kill -9 as well, and without it is not.
for aptpl in yes no; do
    words=
    [ $aptpl = no ] || words=-Z
    reserve $b -G $words -S $SECOND_KEY
    reserve $b -R -T 1 -K $SECOND_KEY
    kill -9 $target
    wait $target || true
    wait_for 30 not session_is LOGGED_IN
    serve_iscsi $served
    wait_for 60 session_is LOGGED_IN
    reservation $b
    if [ $aptpl = yes ]; then
        contains "the reservation" "$said" "$SECOND_KEY" "Write Exclusive"
        may $first read
        may $second write
        reserve $b -C -K $SECOND_KEY
    else
        contains "the reservation" "$said" "NO reservation held"
    fi
    may $first write
done
iscsiadm -m node --logoutall=all
stop
