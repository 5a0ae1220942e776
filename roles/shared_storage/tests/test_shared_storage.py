"""Exports are tight, mounts are units that fail in a sentence, and both are refused in one."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from roles.shared_storage.library import shared_storage_units as units
from roles.shared_storage.plugin_utils import exports, folders, mounts, paths

ROLE = Path(__file__).resolve().parents[1]
PROGRAM = ROLE / "files/usr/local/lib/plumbline/shared-storage"

HOSTS = [
    {"name": "store1", "address": "10.0.0.5"},
    {"name": "ctl1", "address": "10.0.0.1"},
    {"name": "ctl2", "address": "10.0.0.2"},
    {"name": "login1", "address": "10.0.0.3"},
    {"name": "gpu1", "address": "10.0.0.11"},
]
CLIENTS = {"home": ["login1", "gpu1", "store1"], "scratch": ["gpu1"], "state": ["ctl1", "ctl2"]}


def export(path: str = "/srv/home", tier: str = "home", **more: Any) -> dict[str, Any]:
    return {"server": "store1", "path": path, "tier": tier, **more}


def refused(*declared: dict[str, Any], networks: tuple[str, ...] = ()) -> list[str]:
    return exports.problems(declared, CLIENTS, HOSTS, networks)


# --- exports -------------------------------------------------------------------------------------


def test_an_export_is_for_each_client_by_its_address_and_root_of_none():
    text = exports.lines([export()], CLIENTS, HOSTS, "store1")
    options = "-rw,sync,no_subtree_check,sec=sys,root_squash"
    assert text == f"/srv/home {options} \\\n    10.0.0.3 \\\n    10.0.0.11\n"
    assert exports.lines([export()], CLIENTS, HOSTS, "ctl1") == ""


def test_the_state_of_the_controllers_is_theirs_alone():
    text = exports.lines([export("/srv/state", "state")], CLIENTS, HOSTS, "store1")
    assert "no_root_squash" in text.split("\n")[0].split(",")[-1]
    assert text.split()[3::2] == ["10.0.0.1", "10.0.0.2"] or "10.0.0.11" not in text


def test_options_of_an_export_win_over_the_roles():
    options = exports.options_of(export(options=["ro", "sec=krb5p", "fsid=7"]))
    assert options == ["sync", "no_subtree_check", "root_squash", "ro", "sec=krb5p", "fsid=7"]


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ([export("/")], "the export / of store1 belongs to the system"),
        ([export("/etc/x")], "the export /etc/x of store1 belongs to the system"),
        ([export("srv")], "the export srv of store1 is no absolute path"),
        ([export("/srv/../etc")], "is written otherwise than /etc"),
        ([export("/srv/a b")], "is no absolute path of letters"),
        ([export(tier="homes")], "is of the tier homes, which is none; known are home, scratch"),
        ([export(clients=["*"])], "is for *, which is no host of the cluster"),
        ([export(clients=["10.9.9.9"])], "is for 10.9.9.9, which is no host of the cluster"),
        ([export(clients=["10.1.0.0/16"])], "is for 10.1.0.0/16, which is no host"),
        ([export(options=["no_root_squash"])], "has the option no_root_squash, which is not for"),
        ([export(options=["rw) *(rw"])], "which is not for here"),
        ([export(), export()], "store1 exports /srv/home twice"),
        ([export(), export("/srv/home/x")], "exports /srv/home/x, which is inside its export /srv"),
        ([export(server="nas")], "is of a host that the cluster has not"),
    ],
)
def test_an_export_that_is_not_tight_is_refused_in_a_sentence(declared, sentence):
    refusals = refused(*declared)
    assert any(sentence in refusal for refusal in refusals), refusals


def test_a_network_may_mount_only_where_the_site_says_that_nobody_else_is_in_it():
    declared = export(clients=["10.1.2.0/24"])
    assert not refused(declared, networks=("10.1.0.0/16",))
    assert "is no network" in refused(declared, networks=("0.0.0.0/0",))[0]


def test_folders_beside_each_other_are_no_folders_inside_each_other():
    assert not refused(export("/srv/home"), export("/srv/home2"), export("/srv/s", "scratch"))


# --- mounts --------------------------------------------------------------------------------------


def mount(path: str = "/home", kind: str = "nfs", **more: Any) -> dict[str, Any]:
    return {"path": path, "kind": kind, **({"source": "store1:/srv/home"} | more)}


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ([mount(), mount()], "two mounts are declared at /home; leave one of the two"),
        ([mount("/")], "the mount at / belongs to the system"),
        ([mount("/usr")], "the mount at /usr belongs to the system"),
        ([mount(source="store1")], "has the source 'store1'; set it to HOST:/PATH"),
        ([mount(source="store1:/srv/x")], "is /srv/x of store1, which exports /srv/home; set"),
        ([mount(source="10.0.0.1:/x")], "is /x of ctl1, which exports nothing"),
        ([mount(options=["soft"])], "with which writes are lost"),
        ([mount(options=["vers=3"])], "only NFS 4"),
        ([mount(options=["ro,soft"])], "each is one word"),
        ([mount("/lustre", "external")], "has no type; set it to what `findmnt"),
        ([mount("/lustre", "external", type="lustre", options=["x"])], "leave them out"),
    ],
)
def test_a_mount_that_cannot_be_is_refused_in_a_sentence(declared, sentence):
    refusals = mounts.problems(declared, [export()], HOSTS)
    assert any(sentence in refusal for refusal in refusals), refusals


def test_what_a_file_server_of_a_site_exports_is_not_ours_to_know():
    assert not mounts.problems([mount(source="nas.site.org:/vol/home")], [], HOSTS)


def planned(**more: Any) -> dict[str, str]:
    """What gpu1 mounts."""
    (one,) = mounts.of_host([mount(**more)], "gpu1", HOSTS)
    return one


def options_of(unit: dict[str, str]) -> list[str]:
    return unit["text"].partition("Options=")[2].partition("\n")[0].split(",")


def test_a_host_waits_for_its_server_and_boots_without():
    unit = planned()
    assert unit["unit"] == "home.mount"
    assert {"hard", "vers=4", "nosuid", "nodev"} <= set(options_of(unit))
    assert "WantedBy=remote-fs.target" in unit["text"]
    assert "RequiredBy" not in unit["text"]


def test_an_option_of_a_mount_wins_over_its_opposite():
    options = options_of(planned(options=["suid", "vers=4.1"]))
    assert "nosuid" not in options
    assert [option for option in options if option.startswith("vers")] == ["vers=4.1"]


def test_a_server_has_its_own_export_without_nfs():
    (bound,) = mounts.of_host([mount()], "store1", HOSTS)
    assert "What=/srv/home\nWhere=/home\nType=none\nOptions=bind" in bound["text"]
    assert "RequiresMountsFor=/srv/home" in bound["text"]
    assert mounts.of_host([mount("/srv/home")], "store1", HOSTS) == []
    assert mounts.of_host([mount("/srv/home", source="10.0.0.5:/srv/home")], "store1", HOSTS) == []


def test_what_is_exported_to_other_hosts_alone_is_not_mounted():
    """A controller has no homes: NFS would refuse it, and slurmctld would wait for them."""

    def paths_of(host, *declared, **more):
        planned = mounts.of_host(declared, host, HOSTS, [export(**more)], CLIENTS)
        return [entry["path"] for entry in planned]

    below, address = (
        mount("/below", source="store1:/srv/home/a"),
        mount(source="10.0.0.5:/srv/home"),
    )
    assert paths_of("gpu1", mount(), below, address) == ["/below", "/home", "/home"]
    assert paths_of("ctl1", mount(), below, address) == []
    assert paths_of("ctl1", mount(), clients=["ctl1"]) == ["/home"]
    # Of a network, nobody knows whose it is.
    assert paths_of("ctl1", mount(), clients=["10.0.0.0/24"]) == ["/home"]
    assert paths_of("ctl1", mount(source="filer:/srv/home")) == ["/home"]


def test_what_something_else_mounts_has_no_unit():
    lustre = {"path": "/lustre", "type": "lustre"}
    elsewhere = mounts.of_host([lustre | {"kind": "external"}], "gpu1", HOSTS)
    assert elsewhere == [lustre | {"source": ""}]
    document = json.loads(mounts.document(elsewhere, 60))
    assert document == {"patience": 60, "mounts": [lustre]}


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/home", "home.mount"),
        ("/shared/home", "shared-home.mount"),
        ("/a-b/c", "a\\x2db-c.mount"),
        ("/x@y", "x\\x40y.mount"),
        ("/.hid/den", "\\x2ehid-den.mount"),
    ],
)
def test_a_unit_is_called_as_systemd_calls_it(path, unit):
    assert paths.mount_unit(path) == unit


def looked(**parts: Any) -> str:
    kernel = {"nfs": True, "nfsd": True}
    return json.dumps({"kernel": kernel, "mounted": {}, "files": {}} | parts)


NO_NFS = looked(kernel={"nfs": False, "nfsd": False})
FILES = looked(files={"/home": {"problem": "", "names": "ada, bob"}})
SILENT = looked(files={"/home": {"problem": "it does not answer", "names": ""}})


@pytest.mark.parametrize(
    ("output", "declared", "host", "words"),
    [
        (looked(), [mount()], "gpu1", ""),
        (FILES, [mount()], "gpu1", "gpu1 has files in /home (ada, bob), which the mount there"),
        (SILENT, [mount()], "gpu1", "whether gpu1 has files in /home, which the mount there"),
        # A host that lost its own line of /etc/hosts is let in, and gets it back.
        ("sudo: unable to resolve host gpu1: unknown\r\n" + looked(), [mount()], "gpu1", ""),
        (NO_NFS, [mount()], "gpu1", "no NFS client"),
        (NO_NFS, [mount()], "store1", "no NFS server"),
        (NO_NFS, [], "gpu1", ""),
    ],
)
def test_what_a_host_is_like_is_refused_where_it_stands_in_the_way_alone(
    output, declared, host, words
):
    sentences = mounts.host_problems(output, declared, [export()], host, HOSTS)
    assert len(sentences) == bool(words)
    assert words in "".join(sentences)


def test_a_program_that_said_nothing_is_no_success():
    answer = json.dumps({"/home": {"problem": "", "note": "root may not"}})
    verdicts = [mounts.rows(said, [planned()], "gpu1")[0]["verdict"] for said in ("", answer)]
    assert verdicts == ["FAIL", "PASS"]


# --- folders -------------------------------------------------------------------------------------


def test_folders_lie_on_what_is_mounted():
    shared = [{"path": "/shared", "kind": "external", "type": "ext4"}]
    tiers = {"/shared/tmp": "scratch", "/shared/home": "home"}
    declared = [{"path": path, "tier": tier} for path, tier in tiers.items()]
    assert not folders.problems(declared, shared)
    assert folders.with_modes(declared) == [
        {"path": "/shared/home", "mode": "0755"},
        {"path": "/shared/tmp", "mode": "1777"},
    ]
    assert "is on no shared filesystem" in folders.problems(declared, [])[0]
    assert "which is none" in folders.problems([{"path": "/shared/x", "tier": "x"}], shared)[0]


# --- the module ----------------------------------------------------------------------------------


class Systemd:
    """systemctl as the module sees it: units that are started are mounted."""

    def __init__(self, folder: Path) -> None:
        self.host = units.Host(folder / "system", folder / "record.json", folder / "mountinfo")
        self.host.units.mkdir()
        self.host.mountinfo.write_text("")
        self.enabled: set[str] = set()
        self.calls: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, argv: Any) -> subprocess.CompletedProcess[str]:
        verb, unit = argv[1], argv[-1]
        self.calls.append(f"{verb} {unit}")
        code, stderr = 0, ""
        if argv[0] == "journalctl":
            return subprocess.CompletedProcess(argv, 0, "mount.nfs: access denied by server\n", "")
        if f"{verb} {unit}" in self.broken:
            code, stderr = 1, "Job failed."
        elif verb == "is-enabled":
            code = int(unit not in self.enabled)
        elif verb == "enable":
            self.enabled.add(unit)
        elif verb in ("start", "stop"):
            where = units.where_of((self.host.units / unit).read_text())
            lines = self.host.mountinfo.read_text().splitlines()
            rest = [line for line in lines if line.split()[4] != where]
            more = [f"1 2 0:1 / {where} rw - nfs4 x rw"] if verb == "start" else []
            self.host.mountinfo.write_text("".join(f"{line}\n" for line in [*rest, *more]))
        return subprocess.CompletedProcess(argv, code, "", stderr)

    def apply(self, *mounted: dict[str, str], daemons: tuple[str, ...] = (), check: bool = False):
        mounter = units.Mounter(self.host, self, check)
        return mounter.ensure(mounted, daemons, "/lib/program"), mounter.changed


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    return Systemd(tmp_path)


def test_a_second_run_changes_nothing(systemd):
    assert systemd.apply(planned(), daemons=("slurmd",), check=True) == ([], True)
    assert not list(systemd.host.units.iterdir())
    assert systemd.apply(planned(), daemons=("slurmd",)) == ([], True)
    assert systemd.apply(planned(), daemons=("slurmd",)) == ([], False)
    assert systemd.apply(planned(), daemons=("slurmd",), check=True) == ([], False)
    gate = systemd.host.gate("slurmd").read_text()
    assert "ExecStartPre=+/lib/program wait" in gate
    assert "Requires=" not in gate


@pytest.mark.parametrize("place", ["home.mount", f"slurmd.service.d/{units.DROP_IN}"])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.chmod(0o640),
        lambda path: os.chown(path, 12345, -1),
        lambda path: path.write_text(path.read_text() + "# mine\n"),
        lambda path: path.unlink(),
    ],
    ids=["mode", "owner", "content", "removed"],
)
def test_a_file_changed_by_hand_is_put_right_and_named(systemd, place, change):
    systemd.apply(planned(), daemons=("slurmd",))
    path = systemd.host.units / place
    expected = path.read_text()
    change(path)
    for check in (True, False):
        mounter = units.Mounter(systemd.host, systemd, check)
        mounter.ensure([planned()], ["slurmd"], "/lib/program")
        assert mounter.changed_files == [str(path)]
    status = path.stat()
    assert (path.read_text(), status.st_mode & 0o777, status.st_uid) == (
        expected,
        0o644,
        os.getuid(),
    )
    assert systemd.apply(planned(), daemons=("slurmd",)) == ([], False)


def test_check_mode_reports_a_disabled_mount(systemd):
    systemd.apply(planned())
    systemd.enabled.clear()
    assert systemd.apply(planned(), check=True) == ([], True)


def test_what_is_declared_no_more_is_unmounted(systemd):
    systemd.apply(planned(), daemons=("slurmd",))
    assert systemd.apply() == (["/home"], True)
    assert not systemd.host.mounted("/home")
    assert not systemd.host.gate("slurmd").exists()
    assert systemd.apply() == ([], False)


def test_what_is_in_use_is_not_taken_away(systemd):
    systemd.apply(planned())
    systemd.broken.add("stop home.mount")
    with pytest.raises(units.Failed, match=r"cannot be unmounted: .*fuser -vm /home"):
        systemd.apply()
    assert (systemd.host.units / "home.mount").exists()


def test_new_options_are_a_remount_and_another_source_is_a_mount_anew(systemd):
    systemd.apply(planned())
    systemd.apply(planned(options=["ro"]))
    assert "reload home.mount" in systemd.calls
    systemd.apply(planned(source="nas:/home", options=["ro"]))
    assert "restart home.mount" in systemd.calls


def test_a_run_that_ended_before_the_remount_is_mended_by_the_next(systemd):
    systemd.apply(planned())
    systemd.broken.add("reload home.mount")
    with pytest.raises(units.Failed, match="cannot be mounted as declared"):
        systemd.apply(planned(options=["ro"]))
    systemd.broken.clear()
    assert systemd.apply(planned(options=["ro"])) == ([], True)
    assert systemd.apply(planned(options=["ro"])) == ([], False)


def test_a_mount_that_fails_says_what_the_server_said(systemd):
    systemd.broken.add("start home.mount")
    with pytest.raises(units.Failed, match=r"at /home: mount\.nfs: access denied by server"):
        systemd.apply(planned())


def test_a_unit_of_somebody_else_is_left_alone(systemd):
    (systemd.host.units / "home.mount").write_text("[Mount]\nWhat=x\n")
    with pytest.raises(units.Failed, match="is not this role's"):
        systemd.apply(planned())


# --- the program ---------------------------------------------------------------------------------


def program() -> Any:
    loader = SourceFileLoader("shared_storage_program", str(PROGRAM))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"path": "/home", "type": "nfs", "source": "store1:/srv/home"}, ""),
        ({"path": "/home", "type": "nfs", "source": "store1:/srv/home/"}, ""),
        ({"path": "/home", "type": "lustre"}, "nfs4 (store1:/srv/home) is mounted there, not lus"),
        ({"path": "/home", "type": "nfs", "source": "nas:/x"}, "is mounted there, not nas:/x"),
        ({"path": "/scratch", "type": "nfs"}, "nothing is mounted there"),
        ({"path": "/a b", "type": "xfs"}, ""),
        ({"path": "/a b"}, ""),
    ],
)
def test_what_is_mounted_is_held_against_what_is_declared(declared, problem, tmp_path):
    module = program()
    module.MOUNTINFO = tmp_path / "mountinfo"
    module.MOUNTINFO.write_text(
        "1 2 0:1 / / rw - ext4 /dev/vda1 rw\n"
        "3 2 0:2 / /home rw shared:5 - nfs4 store1:/srv/home rw\n"
        "4 2 0:3 / /a\\040b ro - xfs /dev/vdb ro\n"
    )
    message = module.not_as_declared(declared, module.mounts())
    assert (problem in message) if problem else not message


def test_a_file_is_written_and_read_and_gone(tmp_path):
    module = program()
    assert module.answers([partial(module.touch, str(tmp_path), writing=True)]) == [("", "")]
    assert not list(tmp_path.iterdir())
    ((problem, _),) = module.answers([partial(module.touch, str(tmp_path / "none"), writing=False)])
    assert "No such file" in problem


def test_a_filesystem_that_hangs_keeps_nobody(tmp_path):
    module = program()
    module.LIMIT = 0.3
    (tmp_path / "ada").touch()
    answers = module.answers([partial(time.sleep, 20), partial(module.listed, str(tmp_path))])
    assert answers == [("it does not answer within 0.3 s", ""), ("", "ada")]


def test_a_question_that_ends_without_an_answer_is_a_problem():
    answers = program().answers([lambda: os._exit(0)])
    assert answers == [("whoever asked it ended without an answer", "")]


@pytest.mark.parametrize(
    ("problem", "verb"),
    [
        ("nothing is mounted there", "start"),
        ("it does not answer within 10 s", "start"),  # a hard mount of NFS comes back by itself
        ("Transport endpoint is not connected", "restart"),
    ],
)
def test_a_mount_whose_process_died_is_made_anew(problem, verb, monkeypatch):
    module = program()
    problems = iter([problem, ""])
    monkeypatch.setattr(
        module, "judged", lambda *_, **__: {"/home": {"problem": next(problems), "note": ""}}
    )
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    ran: list[list[str]] = []
    monkeypatch.setattr(module.subprocess, "run", lambda argv, **_: ran.append(argv))
    declared = [{"path": "/home", "unit": "home.mount"}, {"path": "/home"}]
    assert module.wait({"patience": 5, "mounts": declared}) == 0
    assert ran == [["systemctl", verb, "--no-block", "home.mount"]]


def test_the_look_names_files_and_asks_nothing_of_what_is_mounted(tmp_path):
    for name in ("ada", "bob", "cy", "dee", "lost+found"):
        (tmp_path / name).mkdir()
    # As tasks/refuse.yml runs it, on a host that does not have it yet.
    argv = [sys.executable, "-", "look", str(tmp_path), str(tmp_path / "none"), "/proc"]
    seen = json.loads(subprocess.check_output(argv, input=PROGRAM.read_text(), text=True))
    assert seen["files"] == {
        str(tmp_path): {"problem": "", "names": "ada, bob, cy, …"},
        str(tmp_path / "none"): {"problem": "", "names": ""},
    }
    assert seen["mounted"]["/proc"][0] == "proc"
