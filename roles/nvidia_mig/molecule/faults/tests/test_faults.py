"""GPUs that cannot be cut, must not be cut now, or are cut otherwise."""

from tests.mig_live import NAMES, names, state, verified, write


def test_another_layout_waits_for_processes_and_jobs(host, play, whole):
    document = state(host)
    document["gpus"][0]["processes"] = [4711]
    write(host, document)
    before = state(host)
    with host.sudo():
        host.run_expect(
            [0],
            "systemd-run --unit=a-job bash -c \"exec -a 'slurmstepd: [4242.0]' sleep infinity\"",
        )
    run = play(nvidia_mig_layout={"7g.40gb": 1})
    assert run.code != 0
    assert "cannot change while its GPUs are used" in run.output
    assert "process 4711 uses GPU 0; job 4242 runs on the node" in run.output
    assert (state(host), names(host)) == (before, NAMES)
    assert '"3g.20gb"' in host.file("/etc/plumbline/mig.json").content_string
    same = play()
    assert (same.code, same.changed) == (0, 0), same.output


def test_another_layout_restarts_what_needs_it_and_an_empty_one_leaves_nothing(host, play, whole):
    since = "systemctl show needs-instances --property=ActiveEnterTimestampMonotonic"
    before = host.check_output(since)
    run = play(nvidia_mig_layout={"1g.5gb": 7})
    assert run.code == 0, run.output
    assert len(names(host)) == 28
    assert host.check_output(since) != before
    run = play(nvidia_mig_layout={})
    assert run.code == 0, run.output
    assert [gpu["on"] for gpu in state(host)["gpus"]] == [False, False]
    assert names(host) == []
    assert not host.file("/usr/local/sbin/plumbline-mig").exists
    assert host.service("needs-instances").is_running
    again = play(nvidia_mig_layout={})
    assert (again.code, again.changed) == (0, 0), again.output
    assert verified(play, nvidia_mig_layout={}) == "PASS"
    assert verified(play) == "FAIL FAIL"


def test_a_mode_that_waits_for_a_boot_keeps_the_node_out(host, play, whole):
    run = play(nvidia_mig_layout={})
    assert run.code == 0, run.output
    document = state(host)
    for gpu in document["gpus"]:
        gpu["reset"] = "boot"
    write(host, document)
    show = {"ansible.builtin.debug": {"msg": "boot={{ __nvidia_mig_reboot }}"}}
    run = play([{"ansible.builtin.include_role": {"name": "nvidia_mig"}}, show])
    assert run.code == 0, run.output
    assert "boot=True" in run.output
    assert "MIG of GPU 0 is on only after the next boot" in run.output
    assert not host.service("needs-instances").is_running
    assert verified(play) == "FAIL FAIL"
    document = state(host)
    for gpu in document["gpus"]:
        gpu["on"] = True
    write(host, document)
    with host.sudo():
        host.run_expect([0], "systemctl start needs-instances")  # as the boot does
    assert verified(play) == "PASS PASS"


def test_a_layout_that_fails_is_told_in_the_words_of_the_driver(host, play, whole):
    document = state(host)
    document["board"]["1g.5gb"] = [[0], 1]
    write(host, document)
    run = play(nvidia_mig_layout={"1g.5gb": 2})
    document["board"]["1g.5gb"] = [[*range(7)], 1]
    assert run.code != 0
    assert "Insufficient Resources" in run.output
    assert "layout of the GPUs is" in run.output
    assert names(host) == []
    assert not host.service("needs-instances").is_running
    write(host, state(host) | {"board": document["board"]})


def test_a_gpu_that_is_missing_keeps_the_node_out(host, play, whole):
    run = play(nvidia_mig_gpus=3)
    assert run.code != 0
    assert "layout of the GPUs is 2 GPUs: 2 of 3g.20gb, expected 3 GPUs: 2 of 3g.20gb" in run.output
    assert "the node has 2 GPUs, 3 are declared" in run.output
    assert not host.service("needs-instances").is_running


def test_without_a_driver_nothing_is_changed_and_nothing_passes(host, play, whole):
    with host.sudo():
        host.run_expect([0], "mv /usr/local/bin/nvidia-smi /usr/local/bin/hidden")
    try:
        run = play()
        assert run.code != 0
        assert "nvidia-smi is not installed; the driver comes first" in run.output
        assert verified(play) == "FAIL FAIL"
        assert play(None, "--check").code == 0
    finally:
        with host.sudo():
            host.run_expect([0], "mv /usr/local/bin/hidden /usr/local/bin/nvidia-smi")
