# What is wrong is a sentence that says what to do: the image, the pool, the user, the key, the configuration, an image that is open already.
# seconds: 90
# run: core
ends_with 2 fabrix bench rbd:disk --number-ios 1
contains "a text without a pool" "$said" "rbd:POOL/IMAGE"
ends_with 2 fabrix bench rbd:rbd/none --number-ios 1
contains "an image that is not there" "$said" "cannot open the image rbd/none" "No such file"
ends_with 2 fabrix bench rbd:rbd/disk@none --number-ios 1
contains "a snapshot that is not there" "$said" "rbd/disk@none"
ends_with 2 fabrix bench rbd:none/disk --number-ios 1
contains "a pool that is not there" "$said" "cannot open the pool none"
ends_with 2 fabrix bench rbd:rbd/disk,conf="$PWD"/none --number-ios 1
contains "a configuration that is not there" "$said" "cannot read Ceph's configuration $PWD/none"
ends_with 3 fabrix bench rbd:rbd/disk,id=nobody --number-ios 1
contains "a user without a key" "$said" "client.nobody" "ceph auth get client.nobody"

ceph-authtool --create-keyring key --gen-key -n client.admin >/dev/null
ends_with 3 fabrix bench rbd:rbd/disk,keyring="$PWD"/key --number-ios 1
contains "a wrong key" "$said" "cannot connect to the Ceph cluster as client.admin"

# A user who may read only.
ceph auth get-or-create client.reader mon 'profile rbd' osd 'profile rbd-read-only' -o reader
fabrix bench rbd:rbd/disk,ro,id=reader,keyring="$PWD"/reader --rw read --bs 4k --number-ios 10 >/dev/null

ends_with 2 fabrix serve rbd:rbd/disk rbd:rbd/disk --listen nvme+tcp://127.0.0.1:0
contains "an image twice" "$said" "are one disk"
