"""From folders of jobs to series: what is summed up, what is not read, how much there can be."""

import json
import os

import pytest

from cluster.exporter import write
from cluster.tests.test_exporter import read
from roles.nccl_inspector.files.nccl_inspector import folders, totals
from roles.nccl_inspector.files.nccl_inspector.totals import Totals
from roles.nccl_inspector.tests.test_dumps import LOST, V40, line


@pytest.fixture
def root(tmp_path):
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def job(root, number=4711):
    folder = root / str(number)
    folder.mkdir()
    return folder


def collective(rank=0, name="AllReduce", microseconds=1000, communicator="0xa", size=8):
    return {
        **V40,
        "header": {"id": communicator, "rank": rank, "n_ranks": size, "nnodes": 1},
        "coll_perf": {**V40["coll_perf"], "coll": name, "coll_exec_time_us": microseconds},
    }


def written(path, *documents):
    with path.open("ab") as file:
        file.write(b"".join(line(document) + b"\n" for document in documents))


def told(sums, root, tmp_path):
    """Series of a round, by name and rank; what all have alike is left out."""
    write(tmp_path / "x.prom", sums.families(folders.of_jobs(root)))
    return read(tmp_path / "x.prom")


def value(samples, name, **labels):
    (found,) = [
        value
        for (metric, *pairs), value in samples.items()
        if metric == f"nccl_inspector_{name}" and labels.items() <= dict(pairs).items()
    ]
    return found


def test_times_and_bandwidths_are_summed_up_over_rounds(root, tmp_path):
    file, sums = job(root) / "gpu1-pid7.log", Totals(32)
    written(file, collective(microseconds=1000), collective(microseconds=3000))
    told(sums, root, tmp_path)
    written(file, collective(microseconds=2000), LOST)
    samples = told(sums, root, tmp_path)
    labels = {"hpc_job": "4711", "comm": "0xa", "rank": "0", "collective": "AllReduce"}
    assert value(samples, "collectives_total", **labels) == 3
    assert value(samples, "collective_seconds_total", **labels) == pytest.approx(0.006)
    bus = value(samples, "bus_bytes_total", **labels) / 0.006
    assert bus == pytest.approx(V40["coll_perf"]["coll_busbw_gbs"] * 1e9)
    assert value(samples, "collective_bytes_total", **labels) == 3 * 17179869184
    assert value(samples, "lost_total", hpc_job="4711") == 17
    assert value(samples, "unreadable_total", hpc_job="4711") == 0


def test_a_line_that_is_not_whole_yet_waits_for_its_end(root, tmp_path):
    file, sums = job(root) / "gpu1-pid7.log", Totals(32)
    text = line(collective()) + b"\n"
    with file.open("ab", buffering=0) as writer:
        writer.write(text + text[:50])
        assert value(told(sums, root, tmp_path), "collectives_total") == 1
        writer.write(text[50:])
        samples = told(sums, root, tmp_path)
    assert value(samples, "collectives_total") == 2
    assert value(samples, "unreadable_total") == 0


def test_what_was_read_takes_no_room_and_the_writer_goes_on(root, tmp_path):
    file, sums = job(root) / "gpu1-pid7.log", Totals(32)
    with file.open("wb", buffering=0) as writer:  # as the inspector opens it
        for _ in range(3):
            writer.write((line(collective()) + b"\n") * 2000)
            samples = told(sums, root, tmp_path)
            assert file.stat().st_blocks * 512 <= 8192
    assert value(samples, "collectives_total") == 6000
    assert value(samples, "unreadable_total") == 0
    # A reader that begins anew, as after a restart, finds what is left, and its first whole line.
    with file.open("ab") as writer:
        writer.write((line(collective()) + b"\n") * 100)
    samples = told(Totals(32), root, tmp_path)
    assert value(samples, "collectives_total") in (99, 100)
    assert value(samples, "unreadable_total") == 0


def test_one_who_only_looks_takes_nothing_away(root, tmp_path):
    file = job(root) / "gpu1-pid7.log"
    written(file, *[collective()] * 50)
    told(Totals(32, keeps=True), root, tmp_path)
    assert value(told(Totals(32), root, tmp_path), "collectives_total") == 50


def test_what_is_not_the_owners_own_file_is_not_read(root, tmp_path):
    folder, elsewhere = job(root), tmp_path / "elsewhere.log"
    written(elsewhere, collective())
    (folder / "link.log").symlink_to(elsewhere)
    os.mkfifo(folder / "pipe.log")
    os.link(elsewhere, folder / "second-name.log")
    (folder / "folder.log").mkdir()
    samples = told(Totals(32), root, tmp_path)
    assert not [key for key in samples if key[0] == "nccl_inspector_collectives_total"]
    with (
        pytest.raises(PermissionError, match="owner"),
        folders.opened(folders.JobFolder("4711", os.getuid() + 1, folder), "second-name.log"),
    ):
        pass
    assert elsewhere.read_bytes() == line(collective()) + b"\n"


def test_a_folder_that_is_a_link_or_no_number_is_no_job(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (root / "12").symlink_to(tmp_path / "elsewhere")
    for name in ("abc", "0012", "12345678901", '1"} 1'):
        (root / name).mkdir()
    (root / "13").write_text("")
    job(root, 14)
    assert [folder.job for folder in folders.of_jobs(root)] == ["14"]


def test_nonsense_is_counted_and_the_rest_is_read(root, tmp_path):
    file = job(root) / "gpu1-pid7.log"
    file.write_bytes(b"nonsense\n{}\n" + line(collective()) + b"\n")
    samples = told(Totals(32), root, tmp_path)
    assert value(samples, "unreadable_total") == 2
    assert value(samples, "collectives_total") == 1


def test_a_line_without_an_end_is_not_kept(root, tmp_path):
    file, sums = job(root) / "gpu1-pid7.log", Totals(32)
    file.write_bytes(b"x" * 200_000)
    assert value(told(sums, root, tmp_path), "unreadable_total") == 1
    with file.open("ab") as writer:
        writer.write(b"xxx\n" + line(collective()) + b"\n")
    assert value(told(sums, root, tmp_path), "collectives_total") == 1


def test_the_number_of_series_has_a_limit_and_the_longest_are_told(root, tmp_path):
    file = job(root) / "gpu1-pid7.log"
    written(file, *(collective(rank, microseconds=rank + 1, size=5000) for rank in range(3000)))
    samples = told(Totals(8), root, tmp_path)
    ranks = {dict(key[1:])["rank"] for key in samples if key[0].endswith("collectives_total")}
    assert ranks == {str(rank) for rank in range(totals.MOST_KEYS - 8, totals.MOST_KEYS)}
    assert value(samples, "series_left_out") == totals.MOST_KEYS - 8
    assert value(samples, "lost_total") == 3000 - totals.MOST_KEYS


def test_jobs_of_one_node_share_the_series(root, tmp_path):
    for number in (1, 2, 3, 4):
        written(job(root, number) / "a.log", *(collective(rank, size=99) for rank in range(99)))
    samples = told(Totals(32), root, tmp_path)
    series = [key for key in samples if key[0] == "nccl_inspector_collectives_total"]
    assert len(series) == 32
    assert {dict(key[1:])["hpc_job"] for key in series} == {"1", "2", "3", "4"}


def test_thousands_of_files_are_not_all_read(root, tmp_path):
    folder = job(root)
    for number in range(folders.MOST_FILES + 20):
        written(folder / f"{number:04}.log", collective())
    samples = told(Totals(32), root, tmp_path)
    assert value(samples, "collectives_total") == folders.MOST_FILES


def test_a_job_that_ended_has_no_series(root, tmp_path):
    folder, sums = job(root), Totals(32)
    written(folder / "a.log", collective())
    assert told(sums, root, tmp_path)
    (folder / "a.log").unlink()
    folder.rmdir()
    assert told(sums, root, tmp_path) == {}


def test_a_folder_without_dumps_has_no_series(root, tmp_path):
    job(root)
    assert told(Totals(32), root, tmp_path) == {}


def test_labels_are_those_of_the_folder_whatever_is_written(root, tmp_path):
    lying = {**collective(), "slurm_job_id": "1", "hpc_job": "1"}
    lying["metadata"] = {"hostname": 'x"} 1\nup 0', "pid": 1, "slurm_job_id": 1}
    written(job(root) / "a.log", lying)
    samples = told(Totals(32), root, tmp_path)
    assert {dict(key[1:])["hpc_job"] for key in samples} == {"4711"}
    assert json.dumps(str(samples)).find("up 0") < 0
