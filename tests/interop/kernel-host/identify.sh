# Every page that nvme-cli can ask for arrives and says what we are; features are read and set; the registers are right.
# modules: nvme-tcp
# tools: nvme
serve ram:16M "raid0:chunk=64k,(ram:8M,ram:8M)"
connect
c=/dev/$ctrl d=$(disk_of 1)

contains id-ctrl "$(nvme id-ctrl $c)" "mn        : Fabrix" "subnqn    : $NQN" "fr        : 0." "kas       : 10" \
    "mdts      : 8" "fuses     : 0x1"
contains id-ns "$(nvme id-ns $d)" "nsze    : 0x8000" "lbads:9" "in use"
descriptors=$(nvme ns-descs $d)
contains ns-descs "$descriptors" "uuid" "nguid" "csi     : 0"
case $descriptors in *00000000-0000-0000* | *0000000000000000*) fail "an identity of zeroes: $descriptors" ;; esac
contains list-ns "$(nvme list-ns $c)" "[   0]:0x1" "[   1]:0x2"
contains smart-log "$(nvme smart-log $c)" "critical_warning" ": 100%"
contains error-log "$(nvme error-log $c)" "Error Log Entries"
# Without the command set nvme-cli 2.4 prints nothing, for any target.
contains effects-log "$(nvme effects-log $c -c 0)" "[Flush " "[Write " "[Compare " "[Dataset Management" "[Verify "
contains fw-log "$(nvme fw-log $c)" "frs1"
contains "the queues" "$(nvme get-feature $c -f 7 -H)" "Number of IO Submission Queues"
contains "the keep-alive" "$(nvme get-feature $c -f 0xf -H)" "Keep Alive Timeout"
contains "the events" "$(nvme get-feature $c -f 0xb -H)" "Namespace Attribute Notices"
nvme set-feature $c -f 4 -v 350
contains "the temperature" "$(nvme get-feature $c -f 4)" "0x0000015e"
refused nvme set-feature $c -f 0x7e -v 1
# `nvme show-regs` of nvme-cli 2.4 prints stack addresses for any Fabrics controller: the registers one by one.
contains CAP "$(nvme get-property $c -o 0)" "value: 201e01007f"
contains VS "$(nvme get-property $c -o 8)" "value: 10400"
contains CC "$(nvme get-property $c -o 0x14)" "value: 460001"
contains CSTS "$(nvme get-property $c -o 0x1c)" "value: 1"
disconnect
stop
