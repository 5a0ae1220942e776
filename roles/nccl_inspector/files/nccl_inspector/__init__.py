"""What NCCL tells of running jobs: how fast its collectives are, and whether they hang.

A job has a folder of its own, which its prolog makes below one of root's. NCCL's inspector (a
profiler plugin) writes there what each collective took; here it is summed up for node_exporter.
Users own what is in these folders, so nothing there is believed but numbers within limits, and who
the job is says the folder, never what is written in it.

A job's hang is found on its first node, by asking a source that knows all ranks: NCCL's RAS, or a
file that the job itself keeps.
"""
