"""sssd.conf of one directory: over TLS, or refused."""

import configparser

import pytest

from roles.cluster_users.plugin_utils import sssd

SETTINGS = {
    "domain": "site",
    "uris": ["ldaps://ldap1.site", "ldaps://ldap2.site:636"],
    "search_base": "dc=site,dc=org",
    "ca_file": "",
    "bind_dn": "",
    "bind_password_file": "",
    "access_filter": "",
    "settings": {},
    "home_root": "/home",
    "shell": "/bin/bash",
    "logins": True,
}


def problems(**changes):
    return sssd.problems({**SETTINGS, **changes})


def domain(**changes):
    text = sssd.sssd_conf({**SETTINGS, **changes}, "/ca.crt", "pass%word = #x")
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    assert parser["sssd"]["domains"] == "site"
    assert "services" not in parser["sssd"]
    return parser["domain/site"]


def test_a_directory_that_can_be_asked():
    assert problems() == []
    assert (
        problems(
            uris=["ldap://ldap1.site"],
            bind_dn="cn=asks,dc=site,dc=org",
            bind_password_file="/secret",
            access_filter="(memberOf=cn=hpc,dc=site,dc=org)",
            settings={"ldap_schema": "rfc2307bis"},
        )
        == []
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"domain": "my site"}, "domain is 'my site'"),
        ({"domain": "a]\n[x"}, "domain is"),
        ({"uris": []}, "uris is empty"),
        ({"uris": ["ldap1.site"]}, "uris has 'ldap1.site'"),
        ({"uris": ["http://ldap1.site"]}, "uris has 'http://ldap1.site'"),
        ({"uris": ["ldapi:///"]}, "uris has 'ldapi:///'"),
        ({"search_base": ""}, "search_base is ''"),
        ({"search_base": "site.org"}, "search_base is 'site.org'"),
        ({"bind_dn": "cn=x"}, "bind_dn and bind_password_file go together"),
        ({"bind_password_file": "/x"}, "bind_dn and bind_password_file go together"),
        ({"access_filter": "memberOf=x"}, "access_filter is 'memberOf=x'"),
        ({"settings": {"ldap_uri": "ldap://x"}}, "set cluster_users_sssd_uris instead"),
        ({"settings": {"ldap_tls_reqcert": "never"}}, "whoever is in between can be any user"),
        ({"settings": {"ldap_tls_reqcert": "Allow"}}, "whoever is in between"),
        ({"settings": {"ldap_id_use_start_tls": False}}, "whoever is in between"),
        ({"settings": {"ldap_auth_disable_tls_never_use_in_production": True}}, "in between"),
        ({"settings": {"a = b": "x"}}, "is no option of a domain"),
        ({"settings": {"debug_level": "1\nmin_id = 0"}}, "is no option of a domain"),
    ],
)
def test_a_directory_that_cannot_be_asked(changes, words):
    assert words in " ".join(problems(**changes))


def test_answers_come_over_tls_from_a_server_of_the_authority():
    section = domain()
    assert section["ldap_uri"] == "ldaps://ldap1.site, ldaps://ldap2.site:636"
    assert (section["ldap_tls_reqcert"], section["ldap_tls_cacert"]) == ("demand", "/ca.crt")
    assert "ldap_id_use_start_tls" not in section
    assert domain(uris=["ldap://ldap1.site"])["ldap_id_use_start_tls"] == "true"


def test_no_entry_of_a_directory_is_a_daemons_account():
    assert domain()["min_id"] == "1000"


def test_a_password_is_there_only_for_who_binds():
    assert "ldap_default_authtok" not in domain()
    section = domain(bind_dn="cn=asks", bind_password_file="/secret")
    assert section["ldap_default_bind_dn"] == "cn=asks"
    assert section["ldap_default_authtok"] == "pass%word = #x"


def test_who_may_log_in():
    assert domain()["access_provider"] == "permit"
    section = domain(access_filter="(memberOf=cn=hpc)")
    assert (section["access_provider"], section["ldap_access_order"]) == ("ldap", "filter")
    assert section["ldap_access_filter"] == "(memberOf=cn=hpc)"


def test_nobody_of_a_directory_logs_in_where_users_may_not():
    section = domain(access_filter="(memberOf=cn=hpc)", logins=False)
    assert section["access_provider"] == "deny"
    assert "ldap_access_filter" not in section


def test_a_sites_settings_win():
    section = domain(settings={"cache_credentials": False, "ldap_schema": "rfc2307bis"})
    assert (section["cache_credentials"], section["ldap_schema"]) == ("false", "rfc2307bis")
