"""What no other exporter knows of GPUs.

It opens no port. It writes one file, whole or not at all, into the textfile folder of
node_exporter, and takes it away when it ends: no value outlives the one who measured it.
"""
