"""What a node says of itself: NVML, RDMA ports, the kernel's log, mounts."""
