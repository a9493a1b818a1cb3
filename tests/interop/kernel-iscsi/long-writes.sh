# Long direct writes from large pages, many at once, over loopback: every block arrives, also where the kernel ends
# threads that receive such writes of its NVMe host.
# modules: iscsi_tcp sd_mod crc32c_generic
# tools: iscsid iscsiadm fio
# log: Power-on or device reset occurred
# seconds: 240
serve_iscsi ram:128M
initiator
login
write_long "$disk"
logout
stop
