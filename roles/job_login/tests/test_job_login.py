"""The stack of PAM that SSH goes through, as the role makes it of what a host has."""

import pytest

from roles.job_login.filter_plugins import job_login as role

SSHD = """\
# PAM configuration for the Secure Shell service
@include common-auth
account    required     pam_nologin.so
# account  required     pam_access.so
@include common-account
session    optional     pam_keyinit.so force revoke
@include common-session
session    required     pam_limits.so
@include common-password
"""
ACCOUNT = """\
account\t[success=1 new_authtok_reqd=done default=ignore]\tpam_unix.so
account\trequisite\t\t\tpam_deny.so
account\trequired\t\t\tpam_permit.so
"""
NONINTERACTIVE = "session\trequired\tpam_unix.so\n"
SESSION = NONINTERACTIVE + (
    "session\toptional\tpam_systemd.so\nsession required\tpam_mkhomedir.so umask=0077\n"
)
SETTINGS = {"enabled": True, "admin_groups": ["sudo", "ops"], "of_several_jobs": "newest"}
OFF = {**SETTINGS, "enabled": False}


def look(sshd: str = SSHD, account: str = ACCOUNT, usepam: str = "yes") -> str:
    return (
        f"== sshd\n{sshd}== common-account\n{account}== common-session\n{SESSION}"
        f"== common-session-noninteractive\n{NONINTERACTIVE}== usepam\nusepam {usepam}"
    )


def test_slurm_is_asked_last_of_accounts_and_logind_about_nobody_but_administrators():
    assert role.stack(look(), SETTINGS) == (
        """\
# PAM configuration for the Secure Shell service
@include common-auth
account    required     pam_nologin.so
# account  required     pam_access.so
@include common-account
# BEGIN plumbline job_login
account [success=1 default=ignore] pam_succeed_if.so quiet user ingroup sudo:ops
account required pam_slurm_adopt.so action_no_jobs=deny action_adopt_failure=deny \
action_generic_failure=deny action_unknown=newest disable_x11=1
# END plumbline job_login
session    optional     pam_keyinit.so force revoke
# BEGIN plumbline job_login
# in place of: @include common-session
@include common-session-noninteractive
session required pam_mkhomedir.so umask=0077
session [success=ignore default=1] pam_succeed_if.so quiet user ingroup sudo:ops
-session optional pam_systemd.so
# END plumbline job_login
session    required     pam_limits.so
@include common-password
"""
    )


def test_it_is_changed_and_taken_away_without_a_trace():
    there = role.stack(look(), SETTINGS)
    assert role.differs(look(), SETTINGS)
    assert not role.differs(look(there), SETTINGS)
    assert not role.differs(look(), OFF)
    other = {**SETTINGS, "admin_groups": ["wheel"], "of_several_jobs": "deny"}
    changed = role.stack(look(there), other)
    assert changed == role.stack(look(), other)
    assert "ingroup wheel\n" in changed
    assert "action_unknown=deny" in changed
    assert role.stack(look(changed), OFF) == SSHD


def test_what_a_site_adds_stays_and_a_later_account_comes_before_slurm():
    there = role.stack(look(), SETTINGS) + "account required pam_access.so\n"
    mended = role.stack(look(there), SETTINGS)
    assert mended.index("pam_access.so\n# BEGIN") < mended.index("pam_slurm_adopt")
    assert mended.count("pam_slurm_adopt") == 1


def test_a_host_without_sshd_has_nothing_to_change():
    assert not role.differs(look(sshd=""), SETTINGS)


def test_who_is_in_charge_is_not_locked_out():
    assert role.host_problems(look(), "deploy sudo", SETTINGS, "gpu1") == []
    assert role.host_problems(look(), "root bin", SETTINGS, "gpu1") == []


AROUND = "lets in who has no job before Slurm is asked"
WAYS = (
    "account sufficient pam_localuser.so\n",
    "-account  sufficient pam_sss.so\n",
    "account [success=done default=ignore] pam_localuser.so\n",
)


@pytest.mark.parametrize(
    ("text", "groups", "words"),
    [
        (look(sshd=""), "sudo", "gpu1 has no /etc/pam.d/sshd"),
        (look(), "deploy root", "to gpu1 as a user of the groups deploy, root, and only sudo, ops"),
        *((look(SSHD + line), "sudo", AROUND) for line in WAYS),
        *((look(account=line + ACCOUNT), "sudo", AROUND) for line in WAYS),
        (look(usepam="no"), "sudo", "set UsePAM yes"),
    ],
)
def test_what_stands_in_the_way_on_a_host_is_told(text, groups, words):
    (sentence,) = role.host_problems(text, groups, SETTINGS, "gpu1")
    assert words in sentence


def test_groups_are_names():
    assert role.group_problems(SETTINGS) == []
    assert "is empty" in role.group_problems({**SETTINGS, "admin_groups": []})[0]
    (sentence,) = role.group_problems({**SETTINGS, "admin_groups": ["sudo", "a b"]})
    assert 'has "a b"; give names of groups' in sentence


def test_slurm_must_contain_jobs():
    good = "PrologFlags             = Alloc,Contain\nProctrackType           = proctrack/cgroup\n"
    assert role.slurm_problems(good, "gpu1") == []
    first, second = role.slurm_problems(
        "PrologFlags = (null)\nProctrackType = proctrack/linuxproc\n", "gpu1"
    )
    assert "PrologFlags=(null); add Contain" in first
    assert "set slurm_constrain to true" in second
    (silent,) = role.slurm_problems("", "gpu1")
    assert "Slurm does not answer on gpu1" in silent
