"""Small daemons that tell Prometheus what no other exporter knows.

They open no port. Each writes one file, whole or not at all, into the textfile folder of
node_exporter, and takes it away when it ends: no value outlives the one who measured it.
"""
