# Our initiator finds the kernel's iSCSI target (LIO), logs in with and without CHAP, one-way and mutual, and writes and
# reads its disk without one wrong byte: with the command, unasked and by R2T, with and without digests.
# modules: target_core_mod target_core_file iscsi_target_mod configfs crc32c_generic
# log: (iSCSI Login|Security negotiation failed|CHAP|AuthMethod|NON_EXISTENT_LUN|Unable to locate Target IQN)
LIO_IQN=iqn.2026-01.org.example:lio
portal=$ADDRESS:3260
lio=/sys/kernel/config/target
tpg=$lio/iscsi/$LIO_IQN/tpgt_1

mkdir -p $lio/core/fileio_0/disk
echo "fd_dev_name=/dev/shm/lio,fd_dev_size=67108864" >$lio/core/fileio_0/disk/control
echo 5ce2a5f0-0000-4000-8000-000000000001 >$lio/core/fileio_0/disk/wwn/vpd_unit_serial
echo 1 >$lio/core/fileio_0/disk/enable
mkdir -p $tpg/lun/lun_0 $tpg/np/$portal
ln -s $lio/core/fileio_0/disk $tpg/lun/lun_0/disk
echo 0 >$tpg/attrib/authentication
echo 1 >$tpg/attrib/generate_node_acls
echo 1 >$tpg/attrib/cache_dynamic_acls
echo 0 >$tpg/attrib/demo_mode_write_protect
echo 1 >$tpg/enable

found=$(fabrix discover iscsi://$portal)
contains "the list" "$found" "$LIO_IQN" "$ADDRESS" 3260

uri=iscsi://$portal/$LIO_IQN/0
mixed="--rw randrw --iodepth 4 --size 16M --runtime 1s"
for size in 4k 64k 256k 1M; do
    measured $uri $mixed --bs $size
done
measured iscsi://$portal $mixed --bs 4k --numjobs 2
measured $uri $mixed --bs 4k -g
measured $uri $mixed --bs 64k -G
measured $uri $mixed --bs 256k -g -G

refused fabrix bench iscsi://$portal/${LIO_IQN}x --runtime 1s
contains "the refusal" "$refusal" "no target of this name"
refused fabrix bench iscsi://$portal/$LIO_IQN/7 --runtime 1s
contains "the refusal" "$refusal" "LUN 7"

# CHAP: one secret for us, and then one for the target too.
echo 1 >$tpg/attrib/authentication
echo me >$tpg/auth/userid
echo "my own secret" >$tpg/auth/password
refused fabrix bench $uri --runtime 1s
contains "the refusal" "$refusal" "secret"
refused fabrix bench "iscsi://me%some other secret@$portal/$LIO_IQN/0" --runtime 1s
contains "the refusal" "$refusal" "authentication failed"
measured "iscsi://me%my own secret@$portal/$LIO_IQN/0" $mixed --bs 4k
echo it >$tpg/auth/userid_mutual
echo "the other secret" >$tpg/auth/password_mutual
measured "iscsi://me%my own secret@$portal/$LIO_IQN/0,target_user=it,target_password=the other secret" $mixed --bs 4k
refused fabrix bench "iscsi://me%my own secret@$portal/$LIO_IQN/0,target_user=it,target_password=not that secret"
contains "the refusal" "$refusal" "did not prove who it is"

echo 0 >$tpg/enable
