"""Modules as users load them, in the shells and scripts that they have."""

import shlex

import pytest

from roles.environment_modules.molecule.parts import (
    ALL,
    CACHE,
    TREE,
    avail,
    loaded,
    login,
)

NASTY = "a \"b\" 'c' $HOME $(touch /tmp/set) `touch /tmp/set` \\n \\ ;&|<>*?!#~ {x,y} [z] %d ü ]]"


@pytest.fixture
def job(host):
    """A function that runs a batch script with what Slurm passes on, which is no shell function."""

    def run(text, interpreter="/bin/bash"):
        with host.sudo():
            lines = host.check_output(
                "su - alice -c 'env --null' | tr '\\0\\n' '\\n\\1'"
            ).splitlines()
            assert any(line.startswith("BASH_FUNC_module") for line in lines)
            passed = [
                line for line in lines if "\1" not in line and not line.startswith("BASH_FUNC")
            ]
            environment = shlex.join([*passed, "SLURM_JOB_ID=7", "SLURM_EXPORT_ENV=NONE"])
            script = shlex.quote(f"#!{interpreter}\n{text}\n")
            host.check_output(f"printf %s {script} > /tmp/job && chmod 755 /tmp/job")
            return host.run(f"runuser -u alice -- env -i {environment} /tmp/job")

    return run


def test_users_see_all_modules_and_those_of_other_trees(host):
    assert avail(host) >= ALL | {"cuda/13.0"}
    assert loaded(host, "module load cuda && echo $CUDA_HOME") == "/srv/cuda"
    assert "A tool, chosen by hand" in loaded(host, "module spider tool/1.10 2>&1")


def test_a_module_is_loaded_and_purged_in_a_login_shell(host):
    output = loaded(host, "module load tool/2.0; tool; module purge; command -v tool || echo none")
    assert output.splitlines() == ["tool 2.0", "none"]
    show = "module load tool/1.10; printenv LD_LIBRARY_PATH CMAKE_PREFIX_PATH; printenv CPATH; tool"
    root = "/srv/apps/tool-1.10"
    assert loaded(host, show).splitlines() == [f"{root}/lib", root, "tool 1.10"]
    before = loaded(host, "echo $PATH; module load tool; module unload tool; echo $PATH")
    assert len(set(before.splitlines())) == 1


def test_the_default_is_loaded_though_there_is_a_higher_version(host):
    assert loaded(host, "module load tool; tool") == "tool 1.10"


def test_manual_pages_of_the_system_are_found_all_the_same(host):
    path = loaded(host, "module load tool; echo $MANPATH").split(":")
    assert path[0] == "/srv/apps/tool-1.10/share/man"
    assert "" in path


@pytest.mark.parametrize("below", ["", "bash -c ", "exec bash "])
def test_a_batch_script_has_modules(job, host, below):
    text = "module load tool && tool"
    if below == "bash -c ":
        text = f"bash -c {shlex.quote(text)}"
    elif below:
        text = f"echo {shlex.quote(text)} > $HOME/step; exec bash $HOME/step"
    done = job(text)
    assert (done.rc, done.stdout) == (0, "tool 1.10\n"), done.stderr


@pytest.mark.parametrize("below", ["{}", "bash -c '{}'", "bash --norc --noprofile -c '{}'"])
def test_a_command_by_ssh_has_modules(host, below):
    """Bash reads /etc/bash.bashrc where sshd started it, up to the line that ends it."""
    command = shlex.quote(below.format("module load tool && tool && echo ${LMOD_CMD##*/}"))
    nothing = "env -i HOME=/home/alice PATH=/usr/bin:/bin SSH_CLIENT=x"
    with host.sudo():
        done = host.run(f"runuser -u alice -- {nothing} bash -c {command}")
    assert (done.rc, done.stdout) == (0, "tool 1.10\nlmod\n"), done.stderr


def test_modules_of_the_login_shell_are_loaded_in_the_job(host):
    output = loaded(host, "module load tool/2.0; echo 'module list; tool' > s; bash s 2>&1")
    assert "tool/2.0" in output
    assert output.endswith("tool 2.0")


def test_a_zsh_script_has_modules(job):
    done = job("module load tool && tool", "/bin/zsh")
    assert (done.rc, done.stdout) == (0, "tool 1.10\n"), done.stderr
    with_nothing = job("env -i HOME=$HOME PATH=/usr/bin:/bin zsh -c 'module load tool && tool'")
    assert (with_nothing.rc, with_nothing.stdout) == (0, "tool 1.10\n"), with_nothing.stderr


def test_zsh_as_a_login_shell_has_modules(host):
    assert loaded(host, "module load tool; tool", "zoe") == "tool 1.10"
    assert avail(host, "zoe") >= ALL


def test_an_interactive_shell_that_is_no_login_shell_has_modules(host):
    with host.sudo():
        done = host.run(
            "runuser -u alice -- env -i HOME=/home/alice PATH=/usr/bin:/bin TERM=dumb "
            "bash -i -c 'module load tool && tool' 2>/dev/null"
        )
    assert (done.rc, done.stdout) == (0, "tool 1.10\n")


def test_a_virtual_environment_is_the_python_of_the_shell(host):
    output = loaded(host, "module load python-env; python3 -c 'import sys; print(sys.prefix)'")
    assert output == "/srv/apps/venv"


@pytest.mark.parametrize("names", ["python-env rival", "rival python-env"])
def test_modules_in_conflict_are_not_loaded_together(host, names):
    first, second = names.split()
    done = login(host, f"module load {first} && module load {second}")
    assert done.rc != 0
    output = " ".join(done.stderr.split())  # Lmod breaks lines
    assert f'Cannot load module "{second}/1" because these module(s) are loaded: {first}' in output


def test_of_a_family_the_next_takes_the_place(host):
    assert loaded(host, "module load mpi-a && module load mpi-b; echo $WHICH_MPI") == "b"
    assert "mpi-a" not in loaded(host, "module load mpi-a mpi-b 2>/dev/null; module -t list 2>&1")


def test_nothing_that_is_written_is_run(host):
    show = 'module load nasty && printf \'%s\\n\' "$NASTY" "$NASTY_PATH" "${EMPTY-unset}."'
    assert loaded(host, show).splitlines() == [NASTY, "/first/of two:/second/$HOME", "."]
    output = loaded(host, "module help nasty 2>&1; module whatis nasty 2>&1")
    assert "\"]] --[[ ' $(touch /tmp/described) \\ ünï" in output
    assert "second line" in output
    assert not host.file("/tmp/described").exists
    assert not host.file("/tmp/set").exists


def test_what_is_not_on_the_host_says_so(host):
    done = login(host, "module load away && echo $PATH")
    assert (done.rc != 0, done.stdout) == (True, "")
    output = " ".join(done.stderr.split())
    assert "away/1 cannot be loaded on this host: there is no folder /srv/apps/away" in output


def test_users_may_read_all_and_change_nothing(host):
    with host.sudo():
        assert host.run(f"find {TREE} {CACHE} ! -perm -o=r -o -perm /o=w | grep .").rc == 1


def test_lmod_uses_the_cache_and_it_can_be_made_anew(host):
    assert CACHE in loaded(host, "module --config 2>&1")
    spider = "module --terse spider rival 2>&1"
    with host.sudo():
        # What the cache lacks is not told: so it is used. Without it `module spider` asks the tree.
        host.check_output(f"cp {TREE}/rival/1.lua {TREE}/rival/2.lua")
    try:
        assert "rival/2" not in loaded(host, spider)
        assert "rival/2" in avail(host)
        assert loaded(host, "module load rival/2; echo $RIVAL") == "yes"
        with host.sudo():
            host.check_output("systemctl start plumbline-module-cache")
        assert "rival/2" in loaded(host, spider)
    finally:
        with host.sudo():
            host.check_output(f"rm {TREE}/rival/2.lua; systemctl start plumbline-module-cache")
    assert "rival/2" not in loaded(host, spider)
    assert host.service("plumbline-module-cache.timer").is_running
    assert host.service("plumbline-module-cache.timer").is_enabled
