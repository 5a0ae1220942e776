"""nccl-tests beside our own figures: its table, and a stand-in for its programs."""

import os
import stat
from pathlib import Path

import pytest

from validation.payloads import nccl_tests
from validation.payloads.nccl_tests import NotUnderstood, installed, measure, parsed

SIZE = 8 << 30


def table(gpus=2, size=SIZE, busbw="361.20", wrong="0", bounds="0 OK", rows=1, more=""):
    """What a program prints, as src/util.cu of nccl-tests 2.17 does."""
    ranks = "\n".join(
        f"#  Rank {rank:2d} Group  0 Pid 123456 on gpu1 device {rank:2d} "
        f"[0000:{rank + 1:02x}:00] NVIDIA H200"
        for rank in range(gpus)
    )
    row = (
        f"  {size}    268435456     float    none      -1    20831  412.36  {busbw}       {wrong}"
        f"    20800  412.98  361.35       0{more}\n"
    )
    return f"""# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_gather_perf
# nThread 1 nGpus {gpus} minBytes {size} maxBytes {size} step: 1048576(bytes) warmup iters: 1
#
# Using devices
{ranks}
#
#                                                              out-of-place            in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)
{row * rows}# Out of bounds values : {bounds}
# Avg bus bandwidth    : 361.275
#
"""


def test_a_table_is_read():
    figures = parsed("all_gather", table(), 2, SIZE)
    assert (figures.busbw_gbs, figures.in_place_busbw_gbs, figures.wrong) == (361.20, 361.35, 0)
    assert parsed("all_gather", table(wrong="3", bounds="3 FAILED"), 2, SIZE).wrong == 3
    assert parsed("all_gather", table(bounds="3 FAILED"), 2, SIZE).wrong == 3
    assert parsed("all_to_all", table(wrong="N/A"), 2, SIZE).wrong == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not say that it used 2 GPUs"),
        (table(gpus=1), "does not say that it used 2 GPUs"),
        (table() * 2, "does not say that it used 2 GPUs"),
        (table().replace("Rank  1", "Rank  0"), "lists 2 ranks on 2 GPUs, not 2"),
        (table().replace("device  1", "device  0"), "lists 2 ranks on 1 GPUs, not 2"),
        (table(rows=0), "its table has 0 lines"),
        (table(rows=2), "its table has 2 lines"),
        (table(more="  extra"), "its table has 14 columns"),
        (table(size=1 << 30), "it moved 1073741824 bytes"),
        (table(busbw="nan"), "a bandwidth of nan GB/s"),
        (table(busbw="0.00"), "a bandwidth of 0.00 GB/s"),
        (table(busbw="inf"), "a bandwidth of inf GB/s"),
        (table(busbw="fast"), "a bandwidth of 'fast'"),
        (table(wrong="few"), "'few' wrong elements"),
        (table(wrong="inf"), "'inf' wrong elements"),
        (table().replace("# Out of bounds", "# In bounds"), "out of bounds"),
    ],
)
def test_another_table_is_no_figure(text, words):
    with pytest.raises(NotUnderstood, match=words):
        parsed("all_gather", text, 2, SIZE)


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "table").write_text(table())
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(nccl_tests, "FOLDERS", ())
    return tmp_path


def test_programs_are_started_for_all_gpus_of_the_node_and_for_one_size(folder, monkeypatch):
    """A build with MPI must not find Slurm's variables: it would take itself for one of many."""
    monkeypatch.setenv("SLURM_PROCID", "3")
    script = f'echo "$@ ${{SLURM_PROCID-alone}}" > {folder}/asked; cat {folder}/table'
    program(folder, "all_gather_perf", script)
    programs = installed(("all_reduce", "all_gather"))
    assert programs == {"all_gather": f"{folder}/all_gather_perf"}
    (row,) = measure(programs, 2, SIZE, 60)
    assert (row["operation"], row["busbw_gbs"], row["error"]) == ("all_gather", 361.20, None)
    asked = (folder / "asked").read_text()
    assert asked == f"-g 2 -b {SIZE} -e {SIZE} -c 1 alone\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'no CUDA device' >&2; exit 2", "it ended with exit status 2: no CUDA device"),
        ("exit 3", "it ended with exit status 3: it does not say that it used 2 GPUs"),
        ("sleep 60", "all_gather_perf did not answer within"),
        ("echo hello", "it does not say that it used 2 GPUs in one process"),
    ],
)
def test_a_program_without_a_table_gives_its_reason(folder, script, words):
    program(folder, "all_gather_perf", script)
    (row,) = measure(installed(("all_gather",)), 2, SIZE, 2)
    assert row["busbw_gbs"] == 0
    assert row["error"].startswith(words)


def test_wrong_elements_count_although_the_program_fails(folder):
    (folder / "table").write_text(table(wrong="5", bounds="5 FAILED"))
    program(folder, "all_gather_perf", f"cat {folder}/table; exit 1")
    (row,) = measure(installed(("all_gather",)), 2, SIZE, 60)
    assert (row["wrong"], row["error"]) == (5, None)


def test_all_together_have_one_limit(folder):
    program(folder, "all_gather_perf", "sleep 60")
    program(folder, "broadcast_perf", "sleep 60")
    first, second = measure(installed(("all_gather", "broadcast")), 2, SIZE, 1.2)
    assert "did not answer within 1.2 s" in first["error"]
    assert second["error"] == "no time was left of 1.2 s"


def test_a_node_without_it_has_nothing_to_say(folder):
    assert installed(("all_gather", "sendrecv")) == {}
    assert measure({}, 8, SIZE, 60) == []
