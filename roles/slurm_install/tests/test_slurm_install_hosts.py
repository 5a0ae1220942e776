"""What becomes of the packages that a host has, and what is refused of it."""

import re

import pytest

from roles.slurm_install.plugin_utils import install as m
from roles.slurm_install.plugin_utils import versions

CANDIDATE = "slurm-client:\n  Installed: (none)\n  Candidate: 22.05.8-4+deb12u3\n"
DEBIAN = """\
package installed slurm-wlm libslurm38 22.05.8-4+deb12u3
package installed slurm-wlm slurm-client 22.05.8-4+deb12u3
package installed slurm-wlm slurm-wlm-basic-plugins 22.05.8-4+deb12u3
package installed slurm-wlm slurmctld 22.05.8-4+deb12u3
"""
SCHEDMD = """\
package installed slurm-smd slurm-smd 24.11.5-1
package installed slurm-smd slurm-smd-client 24.11.5-1
package installed slurm-smd slurm-smd-slurmd 24.11.5-1
"""


def debian(version: str) -> str:
    return DEBIAN.replace("22.05.8-4+deb12u3", version) + CANDIDATE


def test_on_a_bare_host_nothing_is_replaced():
    for packed_by in ("distribution", "schedmd"):
        assert m.change(m.read(CANDIDATE), packed_by, "24.11.5") == m.Change()
        assert m.change_problems(CANDIDATE, packed_by, "24.11.5", "gpu1", False) == []


WLM = ("libslurm38", "slurm-client", "slurm-wlm-basic-plugins", "slurmctld")
SMD = ("slurm-smd", "slurm-smd-client", "slurm-smd-slurmd")
SMD_OF_CTL = ("slurm-smd-client", "slurm-smd-slurmctld")


@pytest.mark.parametrize(
    ("words", "packed_by", "version", "names", "remove"),
    [
        # What is there as asked stays.
        (DEBIAN + CANDIDATE, "distribution", "", (), ()),
        (SCHEDMD, "schedmd", "24.11.5", (), ()),
        (SCHEDMD, "schedmd", "24.11.5-1", (), ()),
        # Libraries go too: both bring a libslurm.so of the same path, and only SchedMD's says less.
        (DEBIAN + CANDIDATE, "schedmd", "24.11.5", SMD_OF_CTL, WLM),
        (SCHEDMD + CANDIDATE, "distribution", "", ("slurm-client", "slurmd"), SMD),
        (SCHEDMD, "schedmd", "24.11.7", SMD, ()),
    ],
)
def test_all_of_another_packaging_or_version_goes_in_one_transaction(
    words, packed_by, version, names, remove
):
    change = m.change(m.read(words), packed_by, version)
    assert (change.names, tuple(sorted(change.remove))) == (names, remove)


def test_a_library_alone_makes_room_unasked():
    library = DEBIAN.splitlines()[0] + "\n" + CANDIDATE
    assert m.change(m.read(library), "schedmd", "24.11.5").remove == ("libslurm38",)
    assert m.change_problems(library, "schedmd", "24.11.5", "gpu1", False) == []


@pytest.mark.parametrize(
    ("answer", "packed_by", "version", "words"),
    [
        (debian("24.05.2-1"), "schedmd", "24.11.5", "24.05.2 from the distribution's packages"),
        (SCHEDMD, "schedmd", "25.05.1", "ctl1 has Slurm 24.11.5 from SchedMD's, and 25.05.1"),
        (debian("24.11.5-4"), "schedmd", "24.11.5", "-e slurm_install_change=true"),
        (SCHEDMD + CANDIDATE, "distribution", "", "22.05.8-4+deb12u3 is asked for, which is older"),
        (SCHEDMD, "schedmd", "24.11.4", "ask for 24.11.5 or newer"),
        (debian("22.05.8-4"), "schedmd", "24.11.5", "go to 23.11 first"),
    ],
)
def test_what_may_not_be_replaced_is_one_sentence(answer, packed_by, version, words):
    (sentence,) = m.change_problems(answer, packed_by, version, "ctl1", False)
    assert words in sentence
    assert sentence.endswith(".")


def test_who_allows_a_change_allows_no_older_slurm():
    assert m.change_problems(SCHEDMD, "schedmd", "25.05.1", "ctl1", True) == []
    assert m.change_problems(SCHEDMD, "schedmd", "24.11.4", "ctl1", True)
    assert m.change_problems(debian("22.05.8-4"), "schedmd", "24.11.5", "ctl1", True)
    # Within a release a version needs no word more.
    assert m.change_problems(SCHEDMD, "schedmd", "24.11.7", "ctl1", False) == []


@pytest.mark.parametrize(
    ("old", "new", "stop"),
    [
        ("24.11.5", "25.11.2", ""),
        ("24.11.5", "26.05.0", ""),
        ("24.05.5", "26.05.0", "25.05"),
        ("23.02.1", "24.11.5", ""),
        ("22.05.8", "23.11.1", ""),
        ("22.05.8", "24.05.1", "23.11"),
        ("21.08.8", "99.05.1", ""),
    ],
)
def test_a_release_reads_what_those_before_it_wrote(old, new, stop):
    assert versions.too_far(old, new) == stop


@pytest.mark.parametrize(
    ("version", "fits", "others"),
    [
        ("25.11.2", ["25.11.2-1", "25.11.2", "1:25.11.2-1~site1"], ["25.11.20-1", "25.11.3-1"]),
        ("25.11.2-1", ["25.11.2-1", "25.11.2-1+site"], ["25.11.2-10", "25.11.2-2"]),
    ],
)
def test_apt_keeps_to_a_version_and_to_no_longer_number(version, fits, others):
    expression = m.pattern(version).strip("/")
    assert all(re.search(expression, each) for each in fits)
    assert not any(re.search(expression, each) for each in others)


POLICY = """\
slurm-smd:
  Installed: (none)
  Candidate: 25.11.2-1
  Version table:
     25.11.3-1 500
        500 https://mirror.example.org/slurm ./ Packages
     25.11.2-1 990
"""


def test_the_version_that_apt_would_install_is_the_one_that_is_asked_for():
    assert m.complaint(POLICY, "25.11.2", "gpu1") == ""
    assert "there is 25.11.3-1, 25.11.2-1" in m.complaint(POLICY, "25.11.4", "gpu1")
    assert "none has it at all" in m.complaint("", "25.11.4", "gpu1")
