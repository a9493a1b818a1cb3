# Whatever a peer says over RDMA, the target answers it or ends that connection, for NVMe and for iSER: private data of
# every length, messages cut at every byte, every kind of descriptor, every flag of a header, and noise. Everything is
# given back afterwards, and others are served meanwhile.
# modules: rdma_rxe crc32_generic crc32c_generic rdma_ucm dummy
# tools: ip rdma libibverbs.so.1 librdmacm.so.1 librxe-rdmav34.so
# kernel: own newer
# seconds: 1800
# log: speed is unknown
# log: rxe0: .*|rxe_invalidate_mr: No MR for key|do_complete: [0-9]+ callbacks suppressed
rdma_up

# zeros BYTES: so many bytes of zero, as digits.
zeros() {
    [ "$1" -eq 0 ] || printf "%0$(($1 * 2))d" 0
}

# text BYTES WORDS: text as digits, filled with zeroes to so many bytes.
text() {
    digits=$(printf "$2" | od -An -v -tx1 | tr -d ' \n')
    echo "$digits$([ ${#digits} -lt $(($1 * 2)) ] && zeros $(($1 - ${#digits} / 2)))"
}

# cut DIGITS BYTES: the first bytes.
cut_at() {
    [ "$2" -gt 0 ] || { echo - && return; }
    printf "%.$(($2 * 2))s\n" "$1"
}

# said PORT: rdma-say has been answered for each line of /tmp/lines; its answers are in /tmp/answers.
said() {
    rdma-say $RDMA:$1 </tmp/lines >/tmp/answers || fail "port $1: $(tail -n 1 /tmp/answers) at line $(wc -l </tmp/answers)"
    is "the answers" "$(wc -l </tmp/answers)" "$(wc -l </tmp/lines)"
    kill -0 $target || fail "the target has ended: $(cat /tmp/serve.err)"
    rm /tmp/lines
}

# outcome WORDS COUNT: so many answers begin like this.
outcome() {
    is "answers with \`$1\`" "$(grep -c "^$1" /tmp/answers)" "$2"
}

# accepted COUNT: so many answers are those to a Connect that has succeeded: controller, queue head, command and status.
accepted() {
    is "accepted commands of Connect in $(head -n 7 /tmp/answers)" \
        "$(grep -c '^answered [0-9a-f]\{4\}0000.\{12\}000001000000' /tmp/answers)" $1
}

serve ram:16M --listen nvme+rdma://$RDMA --listen iser://$RDMA --allow any
# Somebody else is served all the time.
fabrix bench nvme+rdma://$RDMA:4420/$NQN/1 --rw randrw --bs 4k --iodepth 4 --verify --allow-write --runtime 3600s \
    -o json >/tmp/other.json 2>/tmp/other.err &
other=$!

# Private data of an admin queue: RECFMT, QID, HRQSIZE, HSQSIZE, CNTLID.
admin=0000000020001f000000$(zeros 22)
for length in $(seq 0 32); do
    cut_at $admin $length
done >/tmp/lines
said 4420
# With the 5th byte it is right, because zeroes follow: HRQSIZE is 32 then, and HSQSIZE 0 means one entry.
outcome refused 5
# RECFMT 1, HRQSIZE 0, HSQSIZE 0, all of them too large. The reason of the standard stands in the second word. HSQSIZE is
# capped, and 0 means one entry.
for wrong in 0100000020001f00 0000000000001f00 0000000020000000 00000000ffffffff ffffffffffffffff; do
    echo $wrong$(zeros 24)
done >/tmp/lines
said 4420
contains "another RECFMT" "$(sed -n 1p /tmp/answers)" "refused 00000200"

outcome "refused 0000" 3

host=11111111111111111111111111111111
data=${host}ffff$(zeros 238)$(text 256 $NQN)$(text 512 nqn.2014-08.org.nvmexpress:uuid:5ce2a5f0-0000-4000-8000-000000000001)
# connect_entry LENGTH TYPE: the entry of a Connect command, with a descriptor of this length and type. Its data follows.
connect_entry() {
    printf '%s' 7f40010001$(zeros 19)0000000000000000${1}000000${2}000000001f000000$(zeros 16)
}
right=$(connect_entry 00040000 01)$data
is "digits of a capsule" ${#right} 2176
echo $admin $right >/tmp/lines
said 4420
accepted 1
for length in $(seq 0 72) 1023 1024 1087; do
    echo $admin $(cut_at $right $length)
done >/tmp/lines
said 4420
outcome "ended" 64
for length in 00040000 ffffffff; do
    for type in $(seq 0 255); do
        echo $admin $(connect_entry $length $(printf %02x $type))$data
    done
done >/tmp/lines
said 4420
# A queue number twice. The first I/O queue stays, and its number is refused as often as it is asked for (dword 0: byte 42
# of the command). Another number is accepted.
answers() {
    [ "$(wc -l </tmp/answers)" -ge $1 ]
}
# tell LINE: the next line, whose answer is in $answer.
told=0
tell() {
    echo "$@" >&3
    told=$((told + 1))
    wait_for 15 answers $told
    answer=$(sed -n ${told}p /tmp/answers)
}
mkfifo /tmp/lines
rdma-say $RDMA:4420 </tmp/lines >/tmp/answers &
say=$!
exec 3>/tmp/lines
# Property Set: Controller Configuration. Set Features: Number of Queues.
enable=7f40020000$(zeros 35)00000000140000000100460000000000$(zeros 8)
queues=09400300$(zeros 35)400700000003000300$(zeros 16)
tell +$admin $right $enable $queues
controller=$(echo $answer | cut -c 10-13)
io_queue() {
    printf '%s' 7f40010001$(zeros 19)0000000000000000000400000000000100000${1}001f000000$(zeros 16)
    printf '%s' $host$controller${data#${host}ffff}
}
for queue in 1 1 2 1 2 3; do
    tell +00000${queue}0020001f00$controller$(zeros 22) $(io_queue $queue)
    echo "$queue: $answer" >>/tmp/queues
done
exec 3>&-
wait $say || fail "$(cat /tmp/answers)"
rm /tmp/lines
accepted 4
is "refused I/O queues" "$(grep -c 'answered 2a00.*0483$' /tmp/answers)" 3
# Noise, alone and behind a Connect.
for round in $(seq 60); do
    noise=$(head -c 64 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
    echo $admin $noise
    # An Asynchronous Event Request (opcode 0Ch) has no answer.
    echo $admin $right $noise | sed 's/ 0c\([0-9a-f]*\)$/ 0d\1/'
done >/tmp/lines
said 4420

# iSER: a Login Request behind the header of a message.
keys=$(text 0 "InitiatorName=$INITIATOR\\0TargetName=$IQN\\0SessionType=Normal\\0RDMAExtensions=Yes\\0")
size=$((${#keys} / 2))
login() {
    printf '%s' ${1}$(zeros 27)438700000000$(printf %04x ${2})8000000000010000$(zeros 32)$keys$(zeros $(((4 - size % 4) % 4)))
}
# logins COUNT: so many answers begin with a Login Response whose status is success, behind the header of 28 bytes.
logins() {
    is "logins" "$(grep -c '^answered 10.\{54\}23.\{70\}0000' /tmp/answers)" $1
}
private=80000000
right=$(login 10 $size)
echo $private $right >/tmp/lines
said 3260
logins 1
for length in $(seq 0 80) $((76 + size - 1)); do
    echo $private $(cut_at $right $length)
done >/tmp/lines
said 3260
logins 0
for flags in $(seq 0 255); do
    echo $(printf %02x $flags) $(login $(printf %02x $flags) $size)
done >/tmp/lines
said 3260
logins 16
# A login that says that it is longer than its message.
for length in $((size + 4)) $((size + 8192)) 65535; do
    echo $private $(login 10 $length)
done >/tmp/lines
said 3260
logins 0
# READ and WRITE of 4096 bytes, with every combination of tags and directions. The tags are of no memory.
for header in 10 14 18 1c; do
    for flags in 80 a0 c0 e0 00 20 40 60; do
        for operation in 28 2a; do
            command=$(zeros 8)0000000100001000$(zeros 8)${operation}000000000000000800$(zeros 6)
            echo $private $right ${header}000000$(zeros 24)01${flags}0000$(zeros 4)$command
        done
    done
done >/tmp/lines
said 3260
# Every opcode but that of data without a task: a task that was aborted may have sent it, so it is dropped without a word.
for opcode in $(seq 0 255); do
    [ $((opcode & 63)) -eq 5 ] || echo $private $right 10$(zeros 27)$(printf %02x $opcode)800000$(zeros 12)00000001$(zeros 28)
done >/tmp/lines
said 3260
# Noise in requests that are processed at once, with a length of their data and without.
noise() {
    head -c $1 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}
for round in $(seq 10); do
    for opcode in 40 41 42 43 44 46 50; do
        echo $private 10$(noise 27)$opcode$(noise 47)
        echo $private $right 10$(noise 27)$opcode$(noise 47)
        echo $private $right 10$(noise 27)$opcode$(noise 3)$(zeros 4)$(noise 40)
    done
done >/tmp/lines
said 3260

kill -0 $other || fail "the other host was disturbed: $(cat /tmp/other.err)"
kill -INT $other
wait $other || true
is "errors of the other host" "$(number total_err /tmp/other.json)" 0
contains "the other host's result" "$(cat /tmp/other.json)" '"first_error": null' '"errors": 0'
[ "$(number blocks_checked /tmp/other.json)" -gt 0 ] || fail "the other host has checked nothing"
stop
rdma_unused_by fabrix
