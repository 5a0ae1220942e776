"""A training that is killed and resumed: which nodes do what, its files, its end."""

import json
import os
import signal
import time
from dataclasses import asdict, replace

import pytest

from cluster.errors import CannotRun, UsageError
from validation.checks import checkpoint, restart, resume
from validation.model import Outcome, Reply, Standing, Verdict, node_reports, settle
from validation.payloads import checkpoint_files as files
from validation.payloads import killed
from validation.plan import Selection, shrink
from validation.tests import standin
from validation.tests.conftest import declare as declared
from validation.tests.conftest import make_plan, plan_of
from validation.tests.healthy_answers import healthy, result
from validation.tests.judging import changed

SHARED = ("/home", "/scratch")


def plan_for(count, model="virtual", **options):
    nodes = [(f"gpu{number}", model, 2) for number in range(1, count + 1)]
    return make_plan(*nodes, suite="training", shared=SHARED, **options)


def jobs_of(run_plan):
    return {job.payload: job for job in run_plan.groups[0].jobs}


# --- which nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "write", "go_on"),
    [
        (1, "1", "1"),
        (2, "12", "2"),
        (3, "12", "23"),
        (4, "12", "34"),
        (5, "123", "45"),
    ],
)
def test_one_set_of_nodes_writes_and_another_resumes(count, write, go_on):
    jobs = jobs_of(plan_for(count))
    assert jobs["checkpoint"].hosts == tuple(f"gpu{number}" for number in write)
    assert jobs["resume"].hosts == tuple(f"gpu{number}" for number in go_on)


def test_of_many_nodes_none_does_both_and_each_does_one():
    jobs = jobs_of(plan_for(101))
    write, go_on = set(jobs["checkpoint"].hosts), set(jobs["resume"].hosts)
    assert not write & go_on
    assert len(write | go_on) == 101


def test_where_nodes_fail_the_others_are_divided_anew():
    jobs = jobs_of(plan_for(6))
    left = {"gpu1", "gpu2", "gpu3", "gpu4"}  # all three that were to resume but one are gone
    smaller = [shrink(jobs[name], left) for name in ("checkpoint", "resume")]
    assert [job and job.hosts for job in smaller] == [("gpu1", "gpu2"), ("gpu3", "gpu4")]
    assert shrink(jobs["resume"], {"gpu1"}) is None
    assert shrink(jobs["resume"], {f"gpu{number}" for number in range(1, 7)}) == jobs["resume"]


def test_both_jobs_have_one_folder_that_no_other_run_has():
    jobs = jobs_of(plan_for(2))
    (stamp,) = {jobs[name].config["stamp"] for name in ("checkpoint", "resume")}
    assert files.RUN.fullmatch(stamp)
    assert {jobs[name].config["filesystem"] for name in ("checkpoint", "resume")} == {"/home"}


def test_the_filesystem_is_one_that_all_nodes_of_the_group_have():
    document = declared(*((f"gpu{number}", "virtual", 2) for number in (1, 2)))
    document["nodes"][0]["shared_filesystems"] = ["/home", "/scratch"]
    document["nodes"][1]["shared_filesystems"] = ["/scratch"]
    assert jobs_of(plan_of(document, suite="training"))["resume"].config["filesystem"] == "/scratch"
    document["nodes"][1]["shared_filesystems"] = ["/data"]
    run_plan = plan_of(document, suite="training")
    assert {"checkpoint", "resume"}.isdisjoint(jobs_of(run_plan))
    skips = {check.check: check.skip for check in run_plan.checks if check.skip}
    assert skips == dict.fromkeys(("checkpoint", "resume"), "no shared filesystem is declared")


def test_nothing_is_resumed_that_is_not_written():
    for selection in (Selection(only=("resume",)), Selection(skip=("checkpoint",))):
        with pytest.raises(UsageError, match="resume needs checkpoint"):
            plan_for(2, selection=selection)


def test_a_node_that_only_wrote_passes_what_others_resumed():
    run_plan = plan_for(4)
    results = []
    for planned in run_plan.checks:
        answer = healthy("resume")
        value = result("resume", answer.job, standin.line(answer.document))
        job = jobs_of(run_plan).get(planned.check)
        subject = job.subject if job else planned.subject
        results.append(replace(value, check=planned.check, tier=planned.tier, subject=subject))
    settled = settle(run_plan.checks, results)

    def standings(of):
        reports = node_reports(run_plan.nodes, {}, of, run_plan.suite_checks, run_plan.checks)
        return {report.standing for report in reports}

    assert standings(settled) == {Standing.PASSING}
    # Where nobody resumed, nobody passes.
    others = [item for item in settled if item.check != "resume"]
    assert standings(others) == {Standing.UNPROVEN}


# --- the verdict ---------------------------------------------------------------------------------


def of(check, *changes, **reply):
    answer = healthy(check)
    document = changed(answer.document, *((("measured", *path), value) for path, value in changes))
    return result(check, answer.job, standin.line(document), **reply)


def test_one_node_that_resumes_what_two_wrote_is_not_said_to_be_alone():
    job = jobs_of(plan_for(2))["resume"]
    found = result("resume", job, standin.line(standin.resume(job.hosts, job.config)))
    assert (job.ranks, found.verdict, found.message) == (1, Verdict.PASS, "")
    job = jobs_of(plan_for(1))["resume"]
    found = result("resume", job, standin.line(standin.resume(job.hosts, job.config)))
    assert found.message.startswith("one rank")


def test_ranks_that_compute_alike_must_be_equal_bit_by_bit():
    assert of("resume").verdict is Verdict.PASS
    loss = healthy("resume").document["measured"]["losses"][1]
    found = of("resume", (("losses", 1), loss * (1 + 1e-15)))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, None)
    sentence, *_ = found.message.partition("; ")
    assert sentence == "the loss differs from the reference's from step 6 on"


def test_elsewhere_the_tolerances_hold():
    other = (("references_before",), ["ab" * 32])
    loss = healthy("resume").document["measured"]["losses"][1]
    close, far = (("losses", 1), loss * (1 + 1e-7)), (("losses", 1), loss * 1.1)
    assert of("resume", other, close).verdict is Verdict.PASS
    assert of("resume", close).verdict is Verdict.FAIL
    found = of("resume", other, far)
    assert found.verdict is Verdict.FAIL
    assert found.message.startswith("loss difference is ")


def test_a_rank_that_alone_is_wrong_has_its_node_named():
    found = of("checkpoint", (("ranks", 3, "equal"), False))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, ("gpu2",))


def test_a_training_that_stood_still_proves_nothing():
    found = of("resume", (("ranks", 0, "movement"), 1e-9))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_processes_that_were_not_killed_fail():
    assert "SIGTERM" in of("checkpoint", (("ended_by",), "SIGTERM")).message


@pytest.mark.parametrize(("seen_by", "blamed"), [(["gpu3", "gpu4"], ()), (["gpu4"], ("gpu4",))])
def test_a_wrong_file_is_the_filesystems_fault_unless_one_node_alone_sees_it(seen_by, blamed):
    problem = {
        "rank": 1,
        "host": "gpu1",
        "file": "__1_0.distcp",
        "problem": "is torn: 5 of 9 bytes",
        "seen_by": seen_by,
    }
    found = of("resume", (("problems",), [problem]), (("problems_in_all",), 1))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, blamed)
    assert found.message.startswith("__1_0.distcp of rank 1 on gpu1 is torn: 5 of 9 bytes")


def test_a_job_that_fails_says_why_and_nobody_else_is_accused():
    answer = healthy("checkpoint")
    stderr = "plumbline: checkpoint, rank 0 on gpu1: /scratch: 1 MiB are free\n"
    reply = Reply(answer.job.name, Outcome.EXITED, 1, "1", "", stderr)
    rules = make_plan(*(("gpu1", "h100_sxm", 2),)).rules["h100_sxm"]
    found = checkpoint.evaluate(answer.job, reply, rules)
    assert found.verdict is Verdict.FAIL
    assert "1 MiB are free" in found.message
    assert found.subject.nodes == ("gpu1", "gpu2")


def test_parts_are_of_any_sequence():
    assert (checkpoint.part(""), resume.part("")) == ("", "")
    assert restart.number_or_inf(10**400) == float("inf")


# --- files ---------------------------------------------------------------------------------------


def a_manifest(folder):
    """Of two ranks, each of which has written twice."""
    folder.mkdir(parents=True)
    written = []
    for rank in (0, 1):
        path = folder / f"__{rank}_0.distcp"
        path.write_bytes(b"before" * (rank + 1))
        before = files.written(folder, rank, f"gpu{rank + 1}") if rank else []
        path.write_bytes(b"now" * 1000 * (rank + 1))
        (folder / ".metadata").write_bytes(b"metadata")
        written += files.written(folder, rank, f"gpu{rank + 1}", before)
    manifest = files.Manifest("run-1", 4, 2, {"step": "4"}, ("ab",), tuple(written))
    files.write_manifest(folder, manifest)
    return manifest


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    manifest = a_manifest(tmp_path / "run-1")
    assert files.read_manifest(tmp_path / "run-1", "run-1") == manifest
    assert [file.name for file in manifest.files] == ["__0_0.distcp", ".metadata", "__1_0.distcp"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', "null", '{"files": [{}]}'])
def test_a_manifest_that_is_none_is_refused(tmp_path, text):
    (tmp_path / files.MANIFEST).write_text(text)
    with pytest.raises(CannotRun, match="cannot be read"):
        files.read_manifest(tmp_path, "run-1")


def test_a_manifest_of_another_run_or_of_a_strange_file_is_refused(tmp_path):
    manifest = a_manifest(tmp_path / "run-1")
    with pytest.raises(CannotRun, match="of another run"):
        files.read_manifest(tmp_path / "run-1", "run-2")
    document = asdict(manifest)
    document["files"][0]["name"] = "../../etc/passwd"
    (tmp_path / "run-1" / files.MANIFEST).write_text(json.dumps(document))
    with pytest.raises(CannotRun, match="no file of a checkpoint"):
        files.read_manifest(tmp_path / "run-1", "run-1")


def test_a_missing_manifest_is_waited_for_and_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SEEN_S", 0)
    with pytest.raises(CannotRun, match="no complete checkpoint"):
        files.read_manifest(tmp_path, "run-1")


def test_each_kind_of_damage_has_its_name(tmp_path):
    folder = tmp_path / "run-1"
    manifest = a_manifest(folder)
    first, _, last = manifest.files
    path, content = folder / last.name, (folder / last.name).read_bytes()

    def said():
        return files.problem(folder, last, manifest.files)

    assert said() == ""
    path.write_bytes(b"before" * 2)
    assert said() == "is stale: it holds the save before"
    path.write_bytes((folder / first.name).read_bytes())
    assert said() == "is swapped: it holds what rank 0 wrote"
    path.write_bytes(content[:-1])
    assert said() == "is torn: 5999 of 6000 bytes"
    path.write_bytes(content[:-1] + b"x")
    assert said() == "is spoiled: its content is not what was written"
    path.unlink()
    assert said() == "is missing"
    path.mkdir()
    assert said().startswith("cannot be read")


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 100])
def test_every_file_is_looked_at_by_two_ranks_where_there_are_two(ranks):
    for count in (1, 3, 9, 250):
        looks = [index for rank in range(ranks) for index in files.shares(count, rank, ranks, 1)]
        assert sorted(looks) == sorted(list(range(count)) * min(2, ranks))


def make(tmp_path, run="run-1", needed=1):
    folder = files.run_folder(str(tmp_path), run)
    files.make(folder, needed)
    return folder


def test_a_folder_is_made_for_this_user_alone_and_goes_without_a_trace(tmp_path):
    folder = make(tmp_path)
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    files.remove(folder)
    assert list(tmp_path.iterdir()) == []


def test_nothing_but_its_own_files_is_removed(tmp_path):
    folder = make(tmp_path)
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("data")
    (folder / "__0_0.distcp").symlink_to(elsewhere)
    (folder / "notes.txt").write_text("mine")
    (folder / ".metadata").write_text("")
    files.remove(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["__0_0.distcp", "notes.txt"]
    assert elsewhere.read_text() == "data"


def test_what_killed_runs_left_is_removed_after_a_day(tmp_path):
    old, new = make(tmp_path, "run-old"), make(tmp_path, "run-new")
    stranger = old.parent / "has space in its name"
    stranger.mkdir()
    past = time.time() - files.LEFT_S - 60
    for path in (old, stranger):
        os.utime(path, (past, past))
    folder = make(tmp_path, "run-3")
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        stranger.name,
        "run-3",
        "run-new",
    ]
    assert new.exists()


def test_a_link_in_the_place_of_the_users_folder_is_refused(tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir()
    folder = files.run_folder(str(tmp_path), "run-1")
    folder.parent.symlink_to(target)
    with pytest.raises(CannotRun, match="not a folder of this user"):
        files.make(folder, 1)
    assert list(target.iterdir()) == []


def test_too_little_space_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(CannotRun, match=r"MiB are free, a checkpoint needs 9536743164"):
        make(tmp_path, needed=10**16)
    assert not (files.run_folder(str(tmp_path), "run-1")).exists()


@pytest.mark.parametrize("run", ["", "..", "a/b", ".hidden", "x" * 121])
def test_a_run_whose_name_is_no_folder_is_refused(tmp_path, run):
    with pytest.raises(CannotRun, match="no name of a folder"):
        files.run_folder(str(tmp_path), run)


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CannotRun, match="No such file"):
        files.run_folder(str(tmp_path / "none"), "run-1")


# --- the end -------------------------------------------------------------------------------------


def test_work_that_reported_is_killed(tmp_path):
    note = tmp_path / "pid"

    def work(report):
        note.write_text(str(os.getpid()))
        report("done")

    assert killed.after(work) == "done"
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_work_that_complained_itself_has_no_report():
    assert killed.after(lambda _: 1) is None


def test_work_that_raises_has_no_report(capfd):
    def work(_):
        raise ValueError("out of luck")

    assert killed.after(work) is None
    assert "out of luck" in capfd.readouterr().err


def test_work_that_another_killed_is_told():
    def work(_):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(CannotRun, match="ended with -9 before it reported"):
        killed.after(work)


def test_a_long_report_arrives_whole():
    assert killed.after(lambda report: report("x" * 1_000_000)) == "x" * 1_000_000


def test_shards_of_the_same_folder_are_told_apart(tmp_path):
    folder = tmp_path / "run-1"
    a_manifest(folder)
    assert [file.name for file in files.written(folder, 1, "gpu2")] == ["__1_0.distcp"]
