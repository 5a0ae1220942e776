"""What Slurm's controller knows and does not tell Prometheus itself.

It opens no port. It writes one file, whole or not at all, into the textfile folder of
node_exporter, and takes it away when it ends: no value outlives the one who measured it.

One scontrol, squeue, sdiag and sshare for each round, however many nodes and jobs there are and
however often Prometheus asks. scontrol and sdiag are read as JSON where the version has it (24.11
and newer), because their text is made for people; squeue and sshare print the columns that we ask
for, in all versions alike: squeue's JSON is a hundred times as long (8 kB for each job).
"""
