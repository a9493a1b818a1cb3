#!/bin/sh
# Lays out what a guest finds when it starts, but for the first program: image.sh FOLDER KERNEL RELEASE LIST
# KERNEL is the folder of the kernel with this release. Lines of LIST: `program PATH NAME` for a program with its
# libraries, or for a library that is loaded by name; `module NAME` for a module of the kernel with all that it needs.
set -eu
layout=$1 kernel=$2 release=$3 list=$4
modules=$kernel/lib/modules/$release
for folder in usr/bin usr/sbin usr/lib proc sys dev tmp run mnt etc/nvme; do
    mkdir -p "$layout/$folder"
done
ln -s usr/bin usr/sbin usr/lib usr/lib64 "$layout"
# A file to its place, where /lib is a link; everybody may read and run it.
place() {
    mkdir -p "$layout/${2%/*}"
    [ -e "$layout/$2" ] || install -m 755 "$1" "$layout/$2"
}
echo "$list" | while read -r kind what name; do
    case $kind in
    program)
        case $name in
        # Programs find it where it is on this machine.
        lib*.so*) place "$what" "${what#/}" ;;
        *) place "$what" "usr/bin/$name" ;;
        esac
        # A static program has no libraries, and `ldd` says so with an error.
        for library in $(ldd "$what" 2>/dev/null | sed -n 's/.*=> //; s/^[[:space:]]*\(\/.*\) (0x.*/\1/p'); do
            inside=${library#/}
            place "$library" "usr/${inside#usr/}"
        done
        ;;
    module)
        # Words after a comma are its options. What is part of the kernel has no file.
        listed=$(modprobe -d "$kernel" -S "$release" --show-depends "${what%%,*}")
        for file in $(echo "$listed" | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
            place "$file" "usr/lib/modules/$release/${file#"$modules"/}"
        done
        ;;
    esac
done
for index in dep alias softdep builtin order; do
    place "$modules/modules.$index" "usr/lib/modules/$release/modules.$index"
done
