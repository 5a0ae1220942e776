"""A host with something to keep: MariaDB and Slurm are stand-ins, keys are real ones of age."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from roles.backup.files.backup import make
from roles.backup.files.backup.settings import Settings
from tests.checkers import checker
from tests.processes import passes

DUMP = """\
/*M!999999\\- enable the sandbox mode */
-- MariaDB dump 10.19

-- Table structure for table `c_job_table`
CREATE TABLE `c_job_table` (`id_job` int);
INSERT INTO `c_job_table` VALUES (41);

-- Dump completed on 2026-11-27  8:00:00
"""


@dataclass(frozen=True)
class Key:
    """private is a file, public the line that encrypts."""

    private: Path
    public: str


def key(path: Path) -> Key:
    passes(*checker("age-keygen"), "-o", path)
    return Key(path, passes(*checker("age-keygen"), "-y", path).strip())


@dataclass(frozen=True)
class Host:
    """What is on it below a folder; `settings` keep all of it."""

    root: Path
    settings: Settings

    def says(self, program: str, script: str) -> None:
        """Puts a program in the place of MariaDB's or Slurm's."""
        file = self.root / "bin" / program
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def dumps(self, text: str, status: int = 0) -> None:
        (self.root / "dump").write_text(text)
        self.says("mariadb-dump", f"cat {self.root}/dump; exit {status}")

    def make(self, **changes: object) -> make.Made:
        return make.make(replace(self.settings, **changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    """That of the site, and another."""
    folder = tmp_path_factory.mktemp("keys")
    return key(folder / "site"), key(folder / "other")


@pytest.fixture
def host(tmp_path: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in ("bin", "etc/slurm", "state/hash.1/job.41", "metrics"):
        (tmp_path / name).mkdir(parents=True)
    age = Path(checker("age")[0]).parent
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{age}:{os.environ['PATH']}")
    files = {
        "etc/munge.key": "key of munge",
        "etc/slurm/slurmdbd.conf": "DbdHost=ctl1\nStoragePass=a secret=1\n",
        "state/clustername": "c",
        "state/job_state": "jobs",
        "state/job_state.new": "half a file",
        "state/hash.1/job.41/script": "#!/bin/sh",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "etc/slurm/link").symlink_to("slurmdbd.conf")
    settings = Settings(
        cluster="c",
        host="ctl1",
        folder=tmp_path / "archives",
        recipients=(keys[0].public,),
        keep=2,
        copy=(),
        textfile=str(tmp_path / "metrics/backup.prom"),
        database="slurm_acct_db",
        state=str(tmp_path / "state"),
        files=(str(tmp_path / "etc/munge.key"), str(tmp_path / "etc/slurm")),
        optional_files=(str(tmp_path / "nothing"),),
        sqlite=(),
        secrets={
            "munge.key": str(tmp_path / "etc/munge.key"),
            "slurm_database_password": f"{tmp_path}/etc/slurm/slurmdbd.conf#StoragePass",
            "slurm_jwt_key": str(tmp_path / "etc/jwt"),
        },
    )
    made = Host(tmp_path, settings)
    made.dumps(DUMP)
    made.says("scontrol", "echo 'NEXT_JOB_ID             = 42'")
    made.says("slurmctld", "echo slurm-wlm 24.11.5")
    made.says("systemctl", "echo inactive; exit 3")
    return made
