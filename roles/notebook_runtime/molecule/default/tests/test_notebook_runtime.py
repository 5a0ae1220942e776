"""The role on a node: what it wrote, and what it refuses."""

from tests.role_play import Case

FILE = "/etc/notebook_runtime/notebook_runtime.conf"


def test_settings_are_written_and_root_alone_may_change_them(host):
    settings = host.file(FILE)
    assert settings.content_string == "colour = blue\n"
    assert (settings.user, settings.mode) == ("root", 0o644)


def test_a_name_that_is_no_word_is_refused_and_changes_nothing(attempts):
    case = Case("name", {"notebook_runtime_settings": {"Colour!": "red"}}, mends=f"cat {FILE}")
    outcome = attempts([case])["name"]
    outcome.refuses("notebook_runtime_settings has Colour!")
    assert outcome.left == "colour = blue"
