# CHAP of open-iscsi, one-way and mutual, with each of the hashes that it has: with the right secrets it discovers and
# logs in, with a wrong one on either side it does not.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm
# seconds: 180
# log: Power-on or device reset occurred|connection[0-9]+:0: detected conn error
SECRET=secret-of-alice
OTHER=secret-of-fabrix
# What iscsiadm ends with: the target has refused, or the initiator itself has.
BY_TARGET=24
BY_INITIATOR=19
BY_ITSELF=24

# set_key NAME VALUE...: what the initiator says at its next login.
set_key() {
    while [ $# -gt 0 ]; do
        iscsiadm -m node -T $IQN -p $PORTAL -o update -n "node.session.auth.$1" -v "$2"
        shift 2
    done
}

# refused_login STATUS: it ends, soon and with this status, and leaves no session.
refused_login() {
    status=0
    timeout 60 iscsiadm -m node -T $IQN -p $PORTAL --login >login 2>&1 || status=$?
    is "the status of \"$(cat login)\"" $status $1
    is "the sessions" "$(sessions)" ""
}

works() {
    login
    dd if=$disk of=/dev/null bs=64k count=4 iflag=direct 2>/dev/null
    logout
}

# A file that only we may read.
umask 077
echo "alice%$SECRET" >one-way
echo "fabrix%$OTHER" >mutual
umask 022

serve_iscsi ram:16M --chap @one-way --mutual-chap @mutual
initiator discovery.sendtargets.auth.authmethod=CHAP discovery.sendtargets.auth.username=alice \
    discovery.sendtargets.auth.password=$SECRET
is "what is discovered" "$found" "$PORTAL,1 $IQN"
# One who proves nothing is told to.
refused_login $BY_TARGET
set_key authmethod CHAP username alice password "$SECRET"
works
for hash in MD5 SHA1 SHA256 SHA3-256; do
    set_key chap_algs $hash
    works
done
set_key username_in fabrix password_in "$OTHER"
works
# The target proves itself with another secret than the initiator knows.
set_key password_in not-the-secret
refused_login $BY_INITIATOR
set_key password_in "$OTHER" password not-my-secret
refused_login $BY_TARGET
set_key password "$SECRET" username bob
refused_login $BY_TARGET
set_key username alice
works

# To discover takes the same proof.
iscsiadm -m discoverydb -t sendtargets -p $PORTAL -o update -n discovery.sendtargets.auth.password -v not-my-secret
refused timeout 60 iscsiadm -m discoverydb -t sendtargets -p $PORTAL --discover
stop

# At a target that asks for nothing, one who knows the target's secret still wants the proof, whatever `authmethod`
# says; without that secret it logs in.
serve_iscsi ram:16M
set_key authmethod None
refused_login $BY_ITSELF
set_key username_in "" password_in ""
works
stop
