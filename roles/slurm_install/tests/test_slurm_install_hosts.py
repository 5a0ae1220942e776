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


# Two sources have Slurm, and the version that is installed is pinned.
TABLE = """\
slurm-client:
  Installed: 24.11.5-4
  Candidate: 24.11.5-4
  Version table:
     26.05.5-1 500
        500 http://deb.debian.org/debian sid/main amd64 Packages
 *** 24.11.5-4 990
        500 http://deb.debian.org/debian trixie/main amd64 Packages
        100 /var/lib/dpkg/status
     24.05.1-1 500
        500 http://mirror.example.org/debian trixie/main amd64 Packages
"""
TRIXIE = DEBIAN.replace("22.05.8-4+deb12u3", "24.11.5-4")
NEWER = TRIXIE + TABLE
BOOKWORM_ON_TRIXIE = DEBIAN.replace("22.05.8-4+deb12u3", "22.05.8-4") + TABLE.replace(
    "24.11.5-4", "22.05.8-4"
).replace("26.05.5-1", "24.11.5-4")


@pytest.mark.parametrize(
    ("policy", "version"),
    [
        (CANDIDATE, "22.05.8-4+deb12u3"),  # nothing is installed, and no table was printed
        (TABLE, "26.05.5-1"),
        (TABLE.replace(" 26.05.5-1 500\n        500", " 26.05.5-1 100\n        100"), "24.11.5-4"),
        # A site prefers it, against what its source counts.
        (TABLE.replace(" 26.05.5-1 500\n        500", " 26.05.5-1 995\n        100"), "26.05.5-1"),
        # Its source is gone: it stays, and whatever has a source comes before it.
        (TABLE.replace("        500 http://deb.debian.org/debian trixie", "#"), "26.05.5-1"),
        (TABLE.split("     26", maxsplit=1)[0] + " ***" + TABLE.split(" ***")[1], "24.11.5-4"),
        # An unpacked one is not installed.
        (
            TABLE.replace(" *** ", "     ").replace("Installed: 24.11.5-4", "Installed: (none)"),
            "24.11.5-4",
        ),
        ("N: Unable to locate package slurm-client\n", ""),
    ],
)
def test_what_the_distribution_offers_is_not_what_we_pinned(policy, version):
    assert m.offered(policy) == version


def test_the_distributions_packages_change_in_an_upgrade_alone():
    look = m.read(NEWER)
    assert m.change(look, "distribution") == m.Change()
    # No package of the new release has the old library's name.
    names = ("slurm-client", "slurm-wlm-basic-plugins", "slurmctld")
    assert m.change(look, "distribution", upgrades=True) == m.Change(names, (), "26.05.5-1")
    assert m.kept(NEWER) == "24.11.5-4"
    assert m.kept(CANDIDATE) == "22.05.8-4+deb12u3"
    assert m.step(NEWER, "26.05.5-1") == "24.11.5 → 26.05.5"
    assert m.step(CANDIDATE, "") == ""
    assert m.step(NEWER, "") == ""
    assert m.installed_version(SCHEDMD) == "24.11.5"


def test_a_new_revision_of_the_same_release_waits_for_an_upgrade_and_is_no_problem():
    patched = NEWER.replace("26.05.5-1", "24.11.5-4+deb13u1")
    assert m.change_problems(patched, "distribution", "", "gpu1", False) == []
    assert m.change(m.read(patched), "distribution", upgrades=True).version == "24.11.5-4+deb13u1"


def test_what_an_interrupted_run_left_unpacked_is_installed_again():
    torn = SCHEDMD.replace(
        "installed slurm-smd slurm-smd-slurmd", "unpacked slurm-smd slurm-smd-slurmd"
    )
    assert m.change(m.read(torn), "schedmd", "24.11.5").names == SMD
    assert m.change_problems(torn, "schedmd", "24.11.5", "gpu1", False) == []
    half = NEWER.replace(
        "installed slurm-wlm slurm-client", "half-configured slurm-wlm slurm-client"
    )
    assert m.kept(half) == "24.11.5-4"
    assert "slurm-client" in m.change(m.read(half), "distribution", upgrades=True).names


def test_a_full_disk_is_named_once():
    space = "Avail Mounted on\n  900 /\n  900 /\n 5000 /var\n"
    assert m.full(space, 1024) == ["/"]
    assert m.full(space, 500) == []


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
    assert not names or change.version == (version or "22.05.8-4+deb12u3")


def test_a_library_alone_makes_room_unasked():
    library = DEBIAN.splitlines()[0] + "\n" + CANDIDATE
    assert m.change(m.read(library), "schedmd", "24.11.5").remove == ("libslurm38",)
    assert m.change_problems(library, "schedmd", "24.11.5", "gpu1", False) == []


@pytest.mark.parametrize(
    ("answer", "packed_by", "version", "words"),
    [
        (debian("24.05.2-1"), "schedmd", "24.11.5", "24.05.2 from the distribution's packages"),
        (SCHEDMD, "schedmd", "25.05.1", "ctl1 has Slurm 24.11.5 from SchedMD's, and 25.05.1"),
        (debian("24.11.5-4"), "schedmd", "24.11.5", "playbooks/upgrade-slurm.yml"),
        (NEWER, "distribution", "", "26.05.5-1 from the distribution's packages is asked for"),
        (SCHEDMD + CANDIDATE, "distribution", "", "22.05.8-4+deb12u3 is asked for, which is older"),
        (SCHEDMD, "schedmd", "24.11.4", "ask for 24.11.5 or newer"),
        (debian("22.05.8-4"), "schedmd", "24.11.5", "upgrade to 23.11 first"),
        (debian("22.05.8-4"), "schedmd", "26.05.5", "upgrade to 23.11 first"),
        (BOOKWORM_ON_TRIXIE, "distribution", "", "upgrade to 23.11 first"),
    ],
)
def test_what_may_not_be_replaced_is_one_sentence(answer, packed_by, version, words):
    (sentence,) = m.change_problems(answer, packed_by, version, "ctl1", False)
    assert words in sentence
    assert sentence.endswith(".")


def test_an_upgrade_allows_no_older_slurm():
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
