"""The counter of XIDs: which series there are, and that it never falls."""

from unittest.mock import Mock

import pytest

from cluster.readers import kernel_log
from cluster.readers.kernel_log import KernelLog
from roles.gpu_exporter.files.gpu_exporter.xid import LABELS, Unreadable, Xids, bus_id

BOOT = "[    0.000000] kernel: Linux version 6.12"
FELL_OFF = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus."
PAGE_FAULT = "NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=python, MMU Fault"
CONTAINED = "NVRM: Xid (PCI:0000:43:00): 94, pid=7, Contained"
NEW = "NVRM: Xid (PCI:0000:43:00): 999, whatever"
NON_FATAL = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore"
FATAL = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 01 egress"

GPU = "00000000:1B:00.0"
OTHER = "00000000:43:00.0"
SWITCH = "00000000:C1:00.0"


def log(*lines, source="journalctl"):
    stamped = [f"[ {100 + number}.000000] kernel: {line}" for number, line in enumerate(lines)]
    return kernel_log.parse(source, [BOOT, *stamped])


def collected(*logs):
    """What looks at the log tell, where it is like this from one to the next."""
    xids = Xids(Mock(side_effect=logs))
    return [xids.collect() for _ in logs]


def test_each_line_is_counted_with_what_it_means():
    (series,) = collected(log(FELL_OFF, PAGE_FAULT, PAGE_FAULT, CONTAINED, NEW, NON_FATAL, FATAL))
    assert series == {
        (GPU, "xid", "79", "fail"): 1,
        (GPU, "xid", "31", "none"): 2,
        (OTHER, "xid", "94", "warn"): 1,
        (OTHER, "xid", "999", "warn"): 1,
        (SWITCH, "sxid", "28006", "warn"): 1,
        (SWITCH, "sxid", "12028", "fail"): 1,
    }
    assert all(len(key) == len(LABELS) for key in series)


def test_a_log_without_any_is_no_series():
    assert collected(log("usb 1-1: new device")) == [{}]


def test_a_log_that_nobody_may_read_is_a_failure():
    with pytest.raises(Unreadable, match="dmesg: Operation not permitted"):
        collected(KernelLog(None, "dmesg: Operation not permitted"))


def test_the_counter_grows_with_the_log_and_not_with_each_look():
    first, second, third = collected(log(CONTAINED), log(CONTAINED), log(CONTAINED, CONTAINED))
    key = (OTHER, "xid", "94", "warn")
    assert [counts[key] for counts in (first, second, third)] == [1, 1, 2]


@pytest.mark.parametrize(
    "logs",
    [
        pytest.param([log(NEW, NEW, NEW), log(NEW), log(), log(NEW)], id="forgets"),
        pytest.param(
            [log(*[NEW] * 3), log(NEW, source="dmesg"), log(*[NEW] * 3), log(*[NEW] * 4)],
            id="another log with the same lines",
        ),
    ],
)
def test_nothing_is_taken_back_or_counted_twice(logs):
    counted = [counts[OTHER, "xid", "999", "warn"] for counts in collected(*logs)]
    assert counted == [3, 3, 3, 4]


@pytest.mark.parametrize(
    ("pci", "expected"),
    [("0000:1b:00", GPU), ("00000000:c1:00", SWITCH), ("0001:00:00", "00000001:00:00.0")],
)
def test_addresses_are_those_of_dcgm(pci, expected):
    assert bus_id(pci) == expected
