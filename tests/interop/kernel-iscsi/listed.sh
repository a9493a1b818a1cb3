# Initiators that are listed log in, and no others: those are told so, and our log says who was kept out. When the list
# changes, who is on it no more has to go; listed again, it comes back by itself.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm
# log: Power-on or device reset occurred|connection[0-9]+:0: detected conn error
# log: session[0-9]+: session recovery timed out
# What iscsiadm ends with when the target says that an initiator may not log in.
FORBIDDEN=24

# kept_out WORD...: it ends, soon, leaves no session, and our log says who was not let in.
kept_out() {
    before=$(sessions)
    ends_with $FORBIDDEN timeout 60 iscsiadm -m node -T $IQN -p $PORTAL "$@" --login
    is "the sessions" "$(sessions)" "$before"
    contains "our log" "$(cat /tmp/serve.err)" "refused $INITIATOR-$2 from" "this initiator is not among those that may log in"
}

reads() {
    dd if=$disk of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null
}

allow() {
    fabrix ctl --api unix:/tmp/api allow "$@"
}

serve_iscsi ram:16M --initiator $INITIATOR --allow $INITIATOR-first --api unix:/tmp/api
initiator
is "what is discovered" "$found" "$PORTAL,1 $IQN"
nodes first second
kept_out -I second
login -I first
reads

# The list changes while one is there, and reads.
fabrix bench file:$disk --rw randread --bs 4k --iodepth 4 --runtime 10s -o json >bench.json 2>bench.err &
load=$!
allow $INITIATOR-second
wait_for 30 not session_is LOGGED_IN
first=$session
login -I second
reads
logout -I second
allow $INITIATOR-first
session=$first
wait_for 60 session_is LOGGED_IN
wait $load || fail "the load ended with $?: $(cat bench.err)"
kept_out -I second
logout -I first

# To discover, one has to be listed too.
refused timeout 60 iscsiadm -m discovery -t sendtargets -p $PORTAL
stop
