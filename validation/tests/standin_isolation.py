"""Answers of a healthy node's `isolation` jobs, made up, for tests to judge and to break."""

from validation.payloads.isolation import PARTS

OWN = {"first": 0, "second": 1, "none": None}  # the device that Slurm gives each
REFUSED = "Operation not permitted"


def measured(config, count=2, host="gpu1", **changes):
    own = OWN[config["part"]]
    answer = {
        "part": config["part"],
        "met": [part for part in PARTS if part != config["part"]],
        "devices": [
            {"number": number, "denied": None if number == own else REFUSED}
            for number in range(count)
        ],
        "gpus": [] if own is None else [f"GPU-{host}-{own}"],
        "nvml": None,
        "visible": None if own is None else "0",
        "constrained": "yes",
    }
    return {**answer, **changes}
