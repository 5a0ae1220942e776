"""Rows of sacct and series of Prometheus, as they have them."""

from cluster import prometheus
from roles.job_report.files.job_report import sacct

START, END = 1795327200, 1795330800  # an hour


def row(job="4711", **changes):
    cells = {
        "JobID": job,
        "JobIDRaw": job,
        "UID": "2001",
        "User": "alice",
        "Account": "physics",
        "Partition": "gpu",
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "Start": str(START),
        "End": str(END),
        "ElapsedRaw": "3600",
        "TimelimitRaw": "120",
        "AllocCPUS": "16",
        "NodeList": "gpu[1-2]",
        "AllocTRES": "billing=16,cpu=16,gres/gpu:h100_sxm=4,gres/gpu=4,mem=64G,node=2",
        "TotalCPU": "08:00:00",
        "TRESUsageInTot": "",
        "ConsumedEnergyRaw": "",
    }
    assert set(changes) <= set(cells)
    cells |= changes
    return sacct.SEPARATOR.join(cells[name] for name in sacct.COLUMNS)


def steps(job="4711", peak="8192M"):
    blank = dict.fromkeys(("User", "Partition", "TimelimitRaw"), "")
    used = "cpu=00:10:00,energy=0,fs/disk=31,mem={},pages=0,vmem=9G"
    return [
        row(f"{job}.batch", **blank, TRESUsageInTot=used.format("1536K")),
        row(f"{job}.extern", **blank, TRESUsageInTot=used.format("0")),
        row(f"{job}.0", **blank, TRESUsageInTot=used.format(peak)),
    ]


def job(*more, **changes):
    return sacct.parse("\n".join([row(**changes), *(more or steps())]), "4711", "train|big\n")


def answer(*series):
    result = [
        {"metric": labels, "values": [[START + 30 * at, str(value)] for at, value in enumerate(v)]}
        for labels, v in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def gpu(node, number, *values, **more):
    return ({"node": node, "gpu": str(number), **more}, values)


FOUR = [gpu(node, number, 60, 80) for node in ("gpu1", "gpu2") for number in (0, 1)]


def series(*of):
    return prometheus.parse(answer(*of))
