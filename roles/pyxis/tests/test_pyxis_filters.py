"""pyxis' line in plugstack.conf, and which host builds for which."""

import pytest

from playbooks.filter_plugins import pyxis as m


def test_one_line_without_an_include():
    alone = "optional /usr/local/lib/slurm/spank_pyxis.so"
    assert m.pyxis_plugstack({}) == alone
    line = m.pyxis_plugstack({"execute_entrypoint": False, "container_scope": "job"})
    assert line == f"{alone} container_scope=job execute_entrypoint=0"


def test_a_cache_brings_its_importer_and_a_sites_own_wins():
    assert m.pyxis_options_line({}, "user") == [f"importer={m.IMPORTER}"]
    assert m.pyxis_options_line({"importer": "/site/it"}, "user") == ["importer=/site/it"]


@pytest.mark.parametrize(
    ("options", "version", "sentence"),
    [
        ({"remap_root": False}, "0.24.0", "has remap_root, which pyxis does not know"),
        ({"use_squashfuse": True}, "0.23.0", "came with pyxis 0.24"),
        ({"importer": "/x"}, "0.20.0", "came with pyxis 0.21"),
        ({"execute_entrypoint": "no"}, "0.24.0", "is 'no'; set it to true or false"),
        ({"execute_entrypoint": 1}, "0.24.0", "is 1; set it to true or false"),
        ({"container_scope": "user"}, "", "is 'user'; set it to global or job"),
        *(
            ({"runtime_path": path}, "", "absolute path")
            for path in ("run", "/run/a b", "/run/a#b", "/run/a\n")
        ),
    ],
)
def test_what_pyxis_would_not_take_is_refused(options, version, sentence):
    (problem,) = m.pyxis_option_problems(options, version)
    assert sentence in problem


def test_what_it_takes_is_not():
    options = {
        "runtime_path": "/run/pyxis",
        "execute_entrypoint": True,
        "container_scope": "global",
        "sbatch_support": True,
        "use_enroot_load": False,
        "importer": "/usr/local/libexec/x",
        "use_squashfuse": False,
    }
    assert m.pyxis_option_problems(options, "0.24.0") == []
    assert m.pyxis_option_problems(options) == []


def test_another_slurm_is_another_kind():
    inputs = {"slurm": "24.11.5", "source": ["a", ""]}
    assert m.pyxis_kind(inputs) == m.pyxis_kind(dict(reversed(inputs.items())))
    assert m.pyxis_kind(inputs) != m.pyxis_kind(inputs | {"slurm": "24.11.6"})


def test_what_a_host_shows_is_read():
    lines = [
        "slurm=slurm-wlm 24.11.5",
        "library=ab",
        'stamp={"kind": "k", "library": "ab"}',
        "brought=pyxis-0a/ pyxis-1b/ ",
        "offered=yes",
    ]
    seen = m.pyxis_seen("\n".join(lines))
    assert seen["brought"] == ["pyxis-0a", "pyxis-1b"]
    assert m.pyxis_seen("brought=pyxis-*/ ")["brought"] == []
    assert seen["slurm"] == "24.11.5"
    assert seen["offered"] == "yes"
    assert not m.pyxis_lacking(seen, "k")
    assert m.pyxis_lacking(seen, "another")


@pytest.mark.parametrize(
    ("library", "stamp"),
    [
        ("ab", ""),
        ("ab", "{"),
        ("ab", "[]"),
        ("ab", '{"kind": "k", "library": "other"}'),
        ("", '{"kind": "k", "library": ""}'),
    ],
)
def test_a_plugin_without_its_stamp_is_lacking_and_so_is_a_stamp_without_its_plugin(library, stamp):
    seen = m.pyxis_seen(f"slurm=\nlibrary={library}\nstamp={stamp}")
    assert m.pyxis_lacking(seen, "k")
    assert seen["slurm"] == ""


def test_the_first_that_lacks_it_builds_for_its_kind():
    hosts = [("a", "x", False), ("b", "x", True), ("c", "y", True), ("d", "x", True)]
    assert m.pyxis_builders(hosts) == {"x": "b", "y": "c"}
    assert m.pyxis_builders([]) == {}
