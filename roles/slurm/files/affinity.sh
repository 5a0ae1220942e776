# Which CPUs and GPUs a node has, and which are near each other, as the kernel says it, for cluster/slurm/affinity.py:
# lines FILE:TEXT of files below /sys, then `gpu PCI-ADDRESS CPUS NUMBER-OF-ITS-DEVICE-FILE`, with - for what is not
# said, as the number without a driver.
cd "${SYSFS:-/sys}" || exit
grep -s . devices/system/cpu/cpu[0-9]*/topology/physical_package_id \
    devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list devices/system/node/node[0-9]*/cpulist /dev/null
for device in bus/pci/devices/*; do
    if ! grep -qs 0x10de "$device/vendor" || ! grep -qs ^0x03 "$device/class"; then continue; fi
    cpus=$(cat "$device/local_cpulist" 2>&-)
    number=$(sed -n 's/^Device Minor:[[:space:]]*//p' \
        "${PROC:-/proc}/driver/nvidia/gpus/${device##*/}/information" 2>&-)
    echo "gpu ${device##*/} ${cpus:--} ${number:--}"
done
