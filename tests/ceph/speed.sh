# The same load on an image by Debian's fio with librbd and by `fabrix bench rbd:`, in turns, without librbd's cache in either.
# A row has the medians of the runs, and the processor time of an I/O: that of the whole process, its start included.
# seconds: 1800
# run: measurement
# tools: fio
#
# PAIRS=5 is the number of runs of each program, RUN_SECONDS=3 the length of one.
PAIRS=${PAIRS:-5}
RUN_SECONDS=${RUN_SECONDS:-3}
MIB=256
cp "$CEPH_CONF" bare.conf
echo "rbd_cache = false" >>bare.conf

# spent: microseconds of processor time of all programs that have ended.
spent() {
    times >times
    spent=$(tail -n 1 times | awk -F '[ms ]+' '{printf "%d", ($1 * 60 + $2 + $3 * 60 + $4) * 1e6}')
}

# by_fio KIND BLOCK DEPTH: one run. I/Os a second are in $iops, the number of I/Os in $ios.
by_fio() {
    CEPH_CONF="$PWD"/bare.conf fio --name=speed --ioengine=rbd --clientname=admin --pool=rbd --rbdname=disk --rw="$1" \
        --bs="$2" --iodepth="$3" --size=${MIB}M --time_based --runtime="$RUN_SECONDS" --norandommap --randrepeat=0 \
        --output-format=terse --terse-version=3 >fio.out 2>fio.err || fail "fio: $(cat fio.out fio.err)"
    case $1 in
    *read) set -- 8 9 ;;
    *) set -- 49 50 ;;
    esac
    iops=$(cut -d ';' -f "$1" fio.out)
    ios=$((iops * $(cut -d ';' -f "$2" fio.out) / 1000))
}

# by_us KIND BLOCK DEPTH: the same by our program.
by_us() {
    fabrix bench rbd:rbd/disk --rw "$1" --bs "$2" --iodepth "$3" --size ${MIB}M --runtime "$RUN_SECONDS" --norandommap \
        --allow-write -o json >ours.out 2>ours.err || fail "fabrix bench: $(cat ours.err)"
    iops=$(sed -n 's/^ *"iops": \([0-9]*\)\..*/\1/p' ours.out | sort -n | tail -n 1)
    ios=$(sed -n 's/^ *"total_ios": \([0-9]*\),/\1/p' ours.out | sort -n | tail -n 1)
}

# turn PROGRAM KIND BLOCK DEPTH: one run. Its I/Os a second, and its microseconds of each, go to PROGRAM.iops and .cpu.
turn() {
    program=$1
    shift
    spent
    before=$spent
    "by_$program" "$@"
    spent
    [ "$ios" -gt 0 ] || fail "no I/O of $program with $*"
    echo "$iops" >>"$program.iops"
    echo $(((spent - before) / ios)) >>"$program.cpu"
}

# middle FILE: the median of its numbers.
middle() {
    sort -n "$1" | sed -n "$(((PAIRS + 1) / 2))p"
}

# row KIND BLOCK DEPTH: both programs in turns, and a line of the table. Each is the first in half of the pairs.
row() {
    rm -f fio.iops fio.cpu us.iops us.cpu
    pair=0
    while [ $pair -lt "$PAIRS" ]; do
        case $((pair % 2)) in
        0) order="fio us" ;;
        *) order="us fio" ;;
        esac
        for program in $order; do
            turn "$program" "$@"
        done
        pair=$((pair + 1))
    done
    them=$(middle fio.iops) us=$(middle us.iops)
    line "$1 $2 depth $3" "$them" "$us" "$((us * 100 / them)) %" "$(middle fio.cpu)" "$(middle us.cpu)"
}

line() {
    printf 'figure: %-24s %10s %10s %7s %12s %12s\n' "$@"
}

fabrix bench rbd:rbd/disk --rw write --bs 4M --iodepth 4 --size ${MIB}M --loops 1 --allow-write >/dev/null 2>&1
line "medians of $PAIRS" "fio IOPS" "our IOPS" ratio "fio us/IO" "our us/IO"
row randread 4k 1
row randread 4k 32
row randwrite 4k 1
row randwrite 4k 32
row read 128k 8
