"""Which file a job's GPU has, and when it goes."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roles.gpu_exporter.files.usr.local.lib.plumbline import gpu_jobs as jobs


@pytest.fixture
def host(tmp_path: Path) -> jobs.Host:
    return jobs.Host(tmp_path / "jobs", tmp_path / "driver", tmp_path / "mig.json")


def board(host: jobs.Host, pci: str, minor: int) -> None:
    folder = host.proc / "nvidia/gpus" / pci
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"Model: \t H100\nDevice Minor: \t {minor}\n")


def swapped(host: jobs.Host) -> None:
    """The second board on the bus is /dev/nvidia0, as on machines that were seen."""
    board(host, "0000:1b:00.0", 1)
    board(host, "0000:2b:00.0", 0)


def run(
    host: jobs.Host, phase: str, job: str, gpus: str | None = None, order: str = "device"
) -> int:
    environ = {"SLURM_JOB_ID": job} | ({} if gpus is None else {"SLURM_JOB_GPUS": gpus})
    return jobs.main(["--order", order, phase], environ, host)


def files(host: jobs.Host) -> dict[str, list[str]]:
    return {
        path.name: path.read_text().split()
        for path in host.jobs.iterdir()
        if not path.name.startswith(".")
    }


def test_a_job_has_its_gpus_until_it_ends(host):
    assert run(host, "begin", "7", "0,2-3") == 0
    assert files(host) == {"0": ["7"], "2": ["7"], "3": ["7"]}
    assert (host.jobs / "0").stat().st_mode & 0o777 == 0o644
    assert run(host, "end", "7", "0,2-3") == 0
    assert files(host) == {}


@pytest.mark.parametrize(("order", "minor"), [("device", "1"), ("pci", "0")])
def test_minor_numbers_are_not_the_order_of_the_bus_in_which_slurm_detects(host, order, minor):
    swapped(host)
    run(host, "begin", "7", "0", order=order)
    assert files(host) == {minor: ["7"]}


def test_jobs_that_share_a_gpu_end_one_by_one(host):
    run(host, "begin", "7", "0")
    run(host, "begin", "17", "0")
    assert files(host) == {"0": ["7", "17"]}
    run(host, "end", "7", "0")
    assert files(host) == {"0": ["17"]}


def test_a_job_that_was_queued_again_is_there_once_and_nowhere_else(host):
    run(host, "begin", "7", "0,1")
    run(host, "begin", "7", "1,2")
    assert files(host) == {"1": ["7"], "2": ["7"]}


def test_an_epilog_that_is_told_no_gpus_removes_them_all_the_same(host):
    run(host, "begin", "7", "0,1")
    run(host, "end", "7")
    assert files(host) == {}


def test_a_job_without_gpus_makes_no_file(host):
    assert run(host, "begin", "7") == 0
    assert not host.jobs.exists()


def instances(host: jobs.Host) -> None:
    swapped(host)
    entries = [{"uuid": "MIG-a", "numbers": [[235, 30]]}, {"uuid": "MIG-b", "numbers": [[235, 84]]}]
    host.mig.write_text(json.dumps(entries))
    folder = host.proc / "nvidia-caps"
    folder.mkdir()
    (folder / "mig-minors").write_text(
        "config 1\ngpu0/gi3/access 30\ngpu0/gi3/ci0/access 31\n"
        "gpu1/gi9/access 84\ngpu1/gi9/ci0/access 85\n"
    )


@pytest.mark.parametrize(("place", "name"), [("0", "1.3"), ("1", "0.9")])
def test_an_instance_is_named_by_gpu_and_number(host, place, name):
    instances(host)
    assert run(host, "begin", "7", place) == 0
    assert files(host) == {name: ["7"]}


@pytest.mark.parametrize(
    ("gpus", "job", "why"),
    [
        ("5", "7", "no GPU has the minor number 5"),
        ("all", "7", "SLURM_JOB_GPUS is all"),
        ("0", "x", "SLURM_JOB_ID is x"),
        ("0", "", "SLURM_JOB_ID is not set"),
    ],
)
def test_what_is_not_known_is_told_and_makes_no_file(host, capsys, gpus, job, why):
    swapped(host)
    assert run(host, "begin", job, gpus) == 1
    assert why in capsys.readouterr().err
    assert not host.jobs.exists() or files(host) == {}


def test_an_instance_that_nobody_named_is_told(host, capsys):
    instances(host)
    assert run(host, "begin", "7", "2") == 1
    assert "there is no instance 2" in capsys.readouterr().err


def test_a_map_that_is_broken_fails_no_prolog_with_a_traceback(host, capsys):
    instances(host)
    host.mig.write_text("[{}]")
    assert run(host, "begin", "7", "0") == 1
    assert "begin of job 7" in capsys.readouterr().err


def test_many_at_once_lose_nothing(host):
    numbers = [str(number) for number in range(1, 21)]
    with ThreadPoolExecutor(len(numbers)) as pool:
        list(pool.map(lambda number: run(host, "begin", number, "0"), numbers))
    assert sorted(files(host)["0"], key=int) == numbers
