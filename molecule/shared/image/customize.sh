#!/bin/sh
# Runs inside the new root, last step of the image: turns a minimal system into "a server that an
# administrator can reach": one sudo user, key login only.
set -eu

# No hardware of its own: the host's kernel loads modules and names devices.
for unit in systemd-modules-load systemd-udevd systemd-udev-trigger; do
    ln -sf /dev/null "/etc/systemd/system/$unit.service"
done
# Nodes must not change under a test, and an apt run of their own would hold the lock.
for unit in apt-daily.timer apt-daily-upgrade.timer; do
    ln -sf /dev/null "/etc/systemd/system/$unit"
done

# Each boot has an identity of its own, as on a machine: who waits for a reboot asks for it. The
# container would show the host's. Before the journal, which sorts by it. /var/log/boots has a line
# for each: the journal of a container is gone with the boot.
cat > /etc/systemd/system/boot-id.service <<'END'
[Unit]
Description=An identity for this boot
DefaultDependencies=no
Before=systemd-journald.service sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/uuid > /run/boot_id && cat /run/boot_id >> /var/log/boots && mount --bind /run/boot_id /proc/sys/kernel/random/boot_id'

[Install]
WantedBy=sysinit.target
END
systemctl enable --quiet boot-id.service

# A kernel log of its own, too, which begins anew with each boot: the container does not see the host's.
cat > /etc/tmpfiles.d/kernel-log.conf <<'END'
f+! /var/log/kern.log 0644 root root - %H kernel: [    0.000000] Linux version 0 (stand-in for a kernel log)\n
END

useradd --create-home --shell /bin/bash ops
echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops
chmod 0440 /etc/sudoers.d/ops
echo 'PasswordAuthentication no' > /etc/ssh/sshd_config.d/keys-only.conf

# One key per node, not per image: scripts/virtual-cluster gives each node its own.
rm -f /etc/ssh/ssh_host_*
# An empty file makes systemd choose an identity at first boot.
: > /etc/machine-id

# Nodes are thrown away; waiting for the disk after each file would only make them slow to make.
echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/unsafe-io

# What Python compiles of Ansible's modules, kept (zip_code.py).
mkdir /var/cache/zip-code
echo 'import zip_code' > /usr/lib/python3/dist-packages/zip_code.pth

update-ca-certificates >/dev/null
