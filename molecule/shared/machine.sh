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

# Devices are the machine's own; its network is what qemu has.
for unit in systemd-modules-load systemd-udevd systemd-udev-trigger; do
    rm -f "/etc/systemd/system/$unit.service"
done
cat >/etc/systemd/system/machine-network.service <<'END'
[Unit]
Description=Network of the machine
ConditionVirtualization=vm
After=systemd-udev-trigger.service
Before=network.target ssh.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'until ip link set eth0 up; do sleep 0.1; done'
ExecStart=ip address add 10.0.2.15/24 dev eth0
ExecStart=ip route add default via 10.0.2.2

[Install]
WantedBy=multi-user.target
END
systemctl --quiet enable machine-network.service

# The node's files, with what podman mounts into it and without the disk itself.
place=/var/lib/machine root=/run/machine
mkdir -p $place $root
mount --bind / $root
mount -t tmpfs none $root$place
for file in /etc/hostname /etc/hosts /etc/resolv.conf; do
    mount --bind $file $root$file
done
mke2fs -q -t ext4 -d $root $place/disk 6G
umount --recursive $root

# The connection that this came through stays.
systemctl stop ssh.service
kernel=$(find /boot -name 'vmlinuz-*' | sort --version-sort | tail -n 1)
systemd-run --quiet --unit=machine qemu-system-x86_64 \
    -accel kvm -accel tcg -cpu max -smp 2 -m 2048 -display none -no-reboot \
    -kernel "$kernel" -initrd "/boot/initrd.img-${kernel#/boot/vmlinuz-}" \
    -append "root=/dev/vda rw net.ifnames=0 console=ttyS0 quiet" \
    -drive file=$place/disk,format=raw,if=virtio,cache=unsafe \
    -netdev user,id=net,hostfwd=tcp::22-:22 -device virtio-net-pci,netdev=net,romfile= \
    -device virtio-rng-pci -serial file:$place/console
