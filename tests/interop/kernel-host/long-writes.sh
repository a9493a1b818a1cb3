# Long direct writes from large pages, many at once, over loopback: the thread that receives them lives on a kernel that
# ends threads for less, every block arrives, and `doctor` says why such a kernel is slow.
# modules: nvme-tcp crc32c_generic
# tools: nvme fio
# seconds: 240
serve ram:128M
case $(uname -r) in
5.1[89].* | 6.[0-4].*) contains doctor "$(fabrix doctor)" "--  local hosts" "hardened_usercopy=off" ;;
*) contains doctor "$(fabrix doctor)" "ok  local hosts" ;;
esac
connect -i 2
write_long "$disk"
disconnect
stop
