#!/usr/bin/python3
"""A stand-in for sacct, made by a test: alice's job with a GPU, in the columns that are asked for.

As with PrivateData, others than root and slurm see their own jobs alone.
"""

import os
import pwd
import sys

options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
alice = pwd.getpwnam("alice").pw_uid
job = {
    "JobID": "4711",
    "JobIDRaw": "4711",
    "JobName": "train",
    "UID": str(alice),
    "User": "alice",
    "Account": "physics",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "Start": "1795327200",
    "End": "1795330800",
    "ElapsedRaw": "3600",
    "AllocCPUS": "2",
    "NodeList": "node",
    "AllocTRES": "cpu=2,gres/gpu=1,mem=1G",
    "TotalCPU": "01:00:00",
}
sees = os.getuid() in (0, alice, pwd.getpwnam("slurm").pw_uid)
if options["jobs"] == "4711" and sees and options.get("uid", str(alice)) == str(alice):
    print(options["delimiter"].join(job.get(name, "") for name in options["format"].split(",")))
