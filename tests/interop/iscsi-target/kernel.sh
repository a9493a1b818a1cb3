# Our initiator finds the kernel's iSCSI target (LIO), and writes and reads its disks without one wrong byte: with the
# command, unasked and by R2T, with and without digests; its CHAP, one-way and mutual; who is not let in is told why.
# modules: target_core_mod target_core_file iscsi_target_mod configfs crc32c_generic sha3_generic
# run: core
# log: Unable to (load target_core|locate Target IQN)|iSCSI Login negotiation failed|Security negotiation failed
# log: Proposer.s value list|NON_EXISTENT_LUN|Initiator is not allowed|iSCSI Initiator Node
there=iscsi://$PORTAL
uri=$there/$LIO_IQN

lio_serve 2
contains "the list" "$(fabrix discover $there)" "$LIO_IQN" "$ADDRESS" 3260
mixed="--rw randrw --iodepth 4 --size 16M --runtime 1s"
for size in 4k 64k 1M; do
    measured $uri/0 $mixed --bs $size
done
measured $there $mixed --bs 4k --numjobs 2
measured $uri/1 $mixed --bs 4k -g
measured $uri/1 $mixed --bs 64k -G
measured $uri/1 $mixed --bs 256k -g -G

not_opened $there/$LIO_IQN-x "has no target of this name"
not_opened $uri/7 "LUN 7"
not_opened iscsi://$ADDRESS:4999/$LIO_IQN "nothing listens there"

# CHAP: a secret of ours, and then one of the target's too.
chap() {
    echo "iscsi://$1@$PORTAL/$LIO_IQN/0"
}
echo 1 >$lio_group/attrib/authentication
printf me >$lio_group/auth/userid
printf "my own secret" >$lio_group/auth/password
not_opened $uri/0 "does it want a secret"
not_opened "$(chap "me%some other secret")" "authentication failed"
measured "$(chap "me%my own secret")" $mixed --bs 4k
printf it >$lio_group/auth/userid_mutual
printf "the other secret" >$lio_group/auth/password_mutual
mutual=$(chap "me%my own secret"),target_user=it,target_password
measured "$mutual=the other secret" $mixed --bs 4k
not_opened "$mutual=not that secret" "did not prove who it is"

# Who is not listed; the name that was let in before is remembered.
echo 0 >$lio_group/attrib/authentication
echo 0 >$lio_group/attrib/generate_node_acls
ends_with 3 fabrix bench $uri/0 --number-ios 10 --initiator-name $INITIATOR-stranger
contains "the refusal" "$said" "allow this initiator's name there"
echo 0 >$lio_group/enable
