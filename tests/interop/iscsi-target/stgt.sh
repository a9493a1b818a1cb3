# Our initiator finds stgt's target (tgtd), and writes and reads its disk without one wrong byte, with and without
# digests, with CHAP one-way and mutual; served again by us, and once more by another of us, it has what Linux wrote.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: tgtd tgtadm iscsid iscsiadm cmp
# seconds: 180
# log: Power-on or device reset occurred
STGT_IQN=iqn.2026-01.org.example:stgt
STGT=$ADDRESS:3270
uri=iscsi://$STGT/$STGT_IQN
mixed="--rw randrw --iodepth 4 --size 16M --runtime 1s"

# admin VERB KIND WORD...
admin() {
    verb=$1 kind=$2
    shift 2
    ends_with 0 tgtadm --lld iscsi --op $verb --mode $kind "$@"
}
set_key() {
    admin update target --tid 1 --name $1 --value $2
}

mkdir -p /var/run/tgtd
tgtd -f --iscsi portal=$STGT >tgtd.out 2>&1 &
wait_for 30 tgtadm --lld iscsi --op show --mode target
truncate -s 32M /dev/shm/stgt
admin new target --tid 1 --targetname $STGT_IQN
admin new logicalunit --tid 1 --lun 1 --backing-store /dev/shm/stgt
admin bind target --tid 1 --initiator-address ALL

contains "the list" "$(fabrix discover iscsi://$STGT)" "$STGT_IQN" "$ADDRESS" 3270
for size in 4k 64k 1M; do
    measured $uri/1 $mixed --bs $size
done
# The first logical unit that is a disk: number 0 is stgt's controller.
measured iscsi://$STGT $mixed --bs 4k --numjobs 2
# Unasked data too, which stgt takes only when it is told to.
set_key InitialR2T No
measured $uri/1 $mixed --bs 64k
not_opened $uri/0 "LUN 0"
not_opened $uri/7 "LUN 7"
not_opened iscsi://$STGT/$STGT_IQN-x "no target of this name"

# Digests are for who may have them.
set_key HeaderDigest CRC32C
set_key DataDigest CRC32C
measured $uri/1 $mixed --bs 4k -g
measured $uri/1 $mixed --bs 64k -G
measured $uri/1 $mixed --bs 256k -g -G

# CHAP: a secret of ours, and then one of the target's too.
chap() {
    echo "iscsi://$1@$STGT/$STGT_IQN/1"
}
admin new account --user me --password my-own-secret
admin bind account --tid 1 --user me
not_opened $uri/1 "secret"
not_opened "$(chap me%some-other-secret)" "authentication failed"
measured "$(chap me%my-own-secret)" $mixed --bs 4k
admin new account --user it --password the-other-secret
admin bind account --tid 1 --user it --outgoing
mutual=$(chap me%my-own-secret),target_user=it,target_password
measured "$mutual=the-other-secret" $mixed --bs 4k
not_opened "$mutual=not-that-secret" "did not prove who it is"

# stgt's disk is served by us, and what we serve by another of us, where Linux logs in.
near=iscsi://$ADDRESS:3261
serve --listen $near "$mutual=the-other-secret" -g -G
mv /tmp/serve.out near.out
mv /tmp/serve.err near.err
near_one=$target
serve_iscsi $near
measured iscsi://$PORTAL $mixed --bs 16k
initiator
login
dd if=/dev/urandom of=data bs=1M count=32 2>/dev/null
dd if=data of=$disk bs=1M oflag=direct conv=fsync 2>/dev/null
dd if=$disk of=back bs=256k iflag=direct 2>/dev/null
cmp data back
cmp data /dev/shm/stgt
logout
stop
target=$near_one
mv near.err /tmp/serve.err
stop
