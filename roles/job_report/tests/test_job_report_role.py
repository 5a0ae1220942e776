"""What the role packs, and what it says of it."""

import subprocess
import sys

from playbooks.filter_plugins.verify import verify_failures
from roles.job_report.filter_plugins import job_report as filters
from roles.job_report.plugin_utils import archive


def test_a_bare_python_runs_what_is_packed(tmp_path):
    assert archive.content() == archive.content()
    file = tmp_path / "job-report.pyz"
    file.write_bytes(archive.content())
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    command = [str(bare / "bin/python"), "-I", str(file)]
    shown = subprocess.run(
        [*command, "--help"], cwd="/", capture_output=True, text=True, check=True
    )
    assert verify_failures(filters.rows([shown.stdout, shown.stderr])) == []
    none = subprocess.run(
        [*command, "4711"], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr == "sacct cannot be started: No such file or directory.\n"
    for name in ("sacct", "sacctmgr", "sinfo", "sreport"):
        (tmp_path / name).symlink_to("/bin/true")
    page = tmp_path / "month.html"
    subprocess.run(
        [*command, "--month", "2026-10", "--html", str(page)],
        env={"PATH": str(tmp_path)},
        check=True,
    )
    assert "Use of the cluster in 2026-10" in page.read_text()


def test_a_program_or_service_that_does_not_run_is_told():
    sentence = "job_report: job-report runs is {}, expected yes; apply the role job_report"
    assert verify_failures(filters.rows(["", ""])) == [sentence.format("nothing")]
    assert verify_failures(filters.rows(["", "no socket\n"])) == [sentence.format("no socket")]
    assert not verify_failures(filters.rows(["service: answers\naccounting: no.\n", ""]))
