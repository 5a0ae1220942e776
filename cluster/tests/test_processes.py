"""Commands with a limit, and the sentences that say what went wrong with one."""

import pytest

from cluster.processes import CommandFailed, Completed, run, utf8_locale


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("/not/there",), "/not/there cannot be started: No such file or directory"),
        (("sh", "-c", "exec sleep 60"), "sh did not answer within 0.5 s"),
        (("sh", "-c", "exit 3"), "sh ended with exit status 3"),
        (("sh", "-c", "echo a; exit 3"), "sh ended with exit status 3: a"),
        (("sh", "-c", "echo a; echo b >&2; echo c >&2; exit 3"), "sh ended with exit status 3: c"),
    ],
)
def test_what_went_wrong_is_one_sentence(command: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(CommandFailed) as failure:
        run(command, 0.5 if "exec" in command[-1] else 60)
    assert str(failure.value) == sentence


def test_streams_status_and_language() -> None:
    command = ("sh", "-c", 'cat; echo "$LC_ALL" >&2; exit 3')
    assert run(command, 60, stdin=b"\xe4\n", any_status=True) == Completed(3, "�\n", "C\n")
    assert run(command, 60, one_stream=True, any_status=True) == Completed(3, "C\n", "")


@pytest.mark.parametrize(
    ("given", "then"),
    [("C", {"LC_ALL": "C.UTF-8"}), ("no_SUCH", {"LC_ALL": "C.UTF-8"}), ("C.UTF-8", {})],
)
def test_ansible_gets_the_encoding_that_it_needs(given, then, monkeypatch):
    monkeypatch.setenv("LC_ALL", given)
    assert utf8_locale() == then
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    utf8_locale()  # the tests go on with what they had
