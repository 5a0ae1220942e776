#!/bin/sh
# Runs in a node of scripts/virtual-cluster: makes a disk of its files and starts User Mode Linux from it,
# a kernel that is a process and needs no hardware. The machine has the node's address; the container
# keeps none.
set -eu
export DEBIAN_FRONTEND=noninteractive

if [ "$(dpkg --print-architecture)" != amd64 ]; then
    echo "machine.sh: there is no User Mode Linux but for amd64; run this on a host with cgroup v2" >&2
    exit 1
fi
apt-get -qq -o DPkg::Lock::Timeout=600 install --no-install-recommends \
    e2fsprogs user-mode-linux >/dev/null

# While the node still has its address, and can say so. The device belongs to whoever may make one.
mkdir -p /dev/net
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
if ! told=$(ip tuntap add dev tap0 mode tap 2>&1); then
    echo "machine.sh: the machine needs a tap device, and there is none: $told" \
        "(on the host: modprobe tun; or run this on a host with cgroup v2)" >&2
    exit 1
fi

address=$(ip -o -4 address show dev eth0 | awk '{print $4}')
gateway=$(ip -o route show default | awk '{print $3}')
hardware=$(cat /sys/class/net/eth0/address)
cat >/etc/systemd/system/machine-network.service <<END
[Unit]
Description=Network of the machine
ConditionVirtualization=uml
Before=network.target ssh.service

[Service]
Type=oneshot
ExecStart=ip link set vec0 address $hardware
ExecStart=ip link set vec0 up
ExecStart=ip address add $address dev vec0
ExecStart=ip route add default via $gateway

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

# The machine's memory is a file that must be executable.
mkdir -p /run/memory
mount -t tmpfs -o exec,size=3G none /run/memory
cat >$place/run <<END
#!/bin/sh
set -e
ip address flush dev eth0
ip link set eth0 address 02:00:00:00:00:01
ip link add br0 type bridge
for end in eth0 tap0; do ip link set \$end master br0 up; done
ip link set br0 up
export HOME=/root TMPDIR=/run/memory
exec linux.uml mem=2048M ubd0=$place/disk root=/dev/ubda rw vec0:transport=tap,ifname=tap0,depth=128,gro=1 \\
    con=null con0=fd:0,fd:1 ssl=null </dev/null >$place/console 2>&1
END
chmod 755 $place/run

# The connection that this came through ends with the container's address.
systemctl stop ssh.service
systemd-run --quiet --unit=machine --on-active=2 $place/run
