#!/bin/sh
# Runs in a node of scripts/virtual-cluster: makes a disk of its files and starts a virtual machine from
# it, which takes over port 22. Hardware helps (/dev/kvm) and is not needed.
set -eu
export DEBIAN_FRONTEND=noninteractive

if [ "$(dpkg --print-architecture)" != amd64 ]; then
    echo "machine.sh: only amd64 is handled; run this scenario on a host with cgroup v2" >&2
    exit 1
fi
apt-get -qq -o DPkg::Lock::Timeout=600 install --no-install-recommends \
    e2fsprogs initramfs-tools linux-image-cloud-amd64 qemu-system-x86 zstd >/dev/null

# The node's files without what is mounted into it, and without the disk itself.
place=/var/lib/machine root=/run/machine
mkdir -p $place $root
mount --bind / $root
mount -t tmpfs none $root$place
mke2fs -q -t ext4 -d $root $place/disk 6G
umount $root$place $root

# What podman mounts into a container a disk lacks; devices are the machine's own, names as in a container.
change() { debugfs -w -f - $place/disk >/dev/null 2>&1; }
{
    for file in /etc/hostname /etc/hosts /etc/resolv.conf; do
        echo "rm $file"
        echo "write $file $file"
    done
    for unit in systemd-modules-load systemd-udevd systemd-udev-trigger; do
        echo "rm /etc/systemd/system/$unit.service"
    done
} | change

systemctl stop ssh.socket ssh.service 2>/dev/null || systemctl stop ssh.service
kernel=$(find /boot -name 'vmlinuz-*' | sort --version-sort | tail -n 1)
systemd-run --quiet --unit=machine qemu-system-x86_64 \
    -accel kvm -accel tcg -cpu max -smp 2 -m 2048 -display none -no-reboot \
    -kernel "$kernel" -initrd "/boot/initrd.img-${kernel#/boot/vmlinuz-}" \
    -append "root=/dev/vda rw net.ifnames=0 ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off console=ttyS0 quiet" \
    -drive file=$place/disk,format=raw,if=virtio,cache=unsafe \
    -netdev user,id=net,hostfwd=tcp::22-:22 -device virtio-net-pci,netdev=net,romfile= \
    -device virtio-rng-pci -serial file:$place/console
