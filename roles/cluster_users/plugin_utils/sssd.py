"""sssd.conf for one LDAP domain, and what is wrong with what it is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

Settings = Mapping[str, Any]

HEADER = "# Managed by Ansible; changes made here are lost."

_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILTER = re.compile(r"\(.+\)", re.DOTALL)

# Settings of a site's own that would let a password, or somebody else's answers, go in clear text.
_WEAK = {
    "ldap_tls_reqcert": ("never", "allow", "try"),
    "ldap_id_use_start_tls": ("false",),
    "ldap_auth_disable_tls_never_use_in_production": ("true",),
}
# What the role's own variables say; two places for one thing disagree one day.
_OURS = {
    "ldap_uri": "cluster_users_sssd_uris",
    "ldap_search_base": "cluster_users_sssd_search_base",
    "ldap_tls_cacert": "cluster_users_sssd_ca_file",
    "ldap_default_bind_dn": "cluster_users_sssd_bind_dn",
    "ldap_default_authtok": "cluster_users_sssd_bind_password_file",
    "ldap_access_filter": "cluster_users_sssd_access_filter",
}


def problems(settings: Settings) -> list[str]:
    """A clause for each thing that is wrong; `settings` are the role's variables without prefix."""
    return [*_problems(settings)]


def _problems(settings: Settings) -> Iterator[str]:
    if not _DOMAIN.fullmatch(settings["domain"]):
        yield f"domain is {settings['domain']!r}; give the directory a name, such as site"
    if not settings["uris"]:
        yield "uris is empty; set it to the directory's servers, such as [ldaps://ldap1.site]"
    for uri in settings["uris"]:
        parts = urlsplit(str(uri))
        if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or parts.path.strip("/"):
            yield f"uris has {str(uri)!r}, which is no ldaps://HOST and, for StartTLS, no ldap://HOST"
    if not re.fullmatch(r"\w+=[^,]+(,\s*\w+=[^,]+)*", settings["search_base"]):
        yield f"search_base is {settings['search_base']!r}; set it to a DN such as dc=site,dc=org"
    if bool(settings["bind_dn"]) != bool(settings["bind_password_file"]):
        yield "bind_dn and bind_password_file go together; set both, or none for an open directory"
    if settings["access_filter"] and not _FILTER.fullmatch(settings["access_filter"].strip()):
        yield (
            f"access_filter is {settings['access_filter']!r}; set it to a filter of LDAP, such as "
            "(memberOf=cn=hpc,ou=groups,dc=site,dc=org)"
        )
    for key in ("search_base", "bind_dn", "access_filter", "ca_file"):
        if "\n" in settings[key].strip():
            yield f"{key} has several lines"
    yield from _extra_problems(settings["settings"])


def _extra_problems(extra: Settings) -> Iterator[str]:
    for key, value in extra.items():
        text = _word(value)
        if key in _OURS:
            yield f"settings has {key}; set {_OURS[key]} instead"
        if text.lower() in _WEAK.get(key, ()):
            yield (
                f"settings has {key} = {text}, with which whoever is in between can be any user; "
                "leave it out"
            )
        if not re.fullmatch(r"[a-z0-9_]+", str(key)) or "\n" in text:
            yield f"settings has {str(key)!r}, which is no option of a domain on one line"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _access(settings: Settings) -> str:
    if not settings["logins"]:
        return "deny"
    return "ldap" if settings["access_filter"] else "permit"


def sssd_conf(settings: Settings, authority: str, password: str) -> str:
    """The text of sssd.conf. Responders are started by their sockets, so no section lists them."""
    domain: dict[str, Any] = {
        "id_provider": "ldap",
        "auth_provider": "ldap",
        "chpass_provider": "ldap",
        "access_provider": _access(settings),
        "ldap_uri": ", ".join(settings["uris"]),
        "ldap_search_base": settings["search_base"],
        "ldap_tls_reqcert": "demand",
        "ldap_tls_cacert": authority,
        # No entry of the directory is root, or a daemon's account.
        "min_id": 1000,
        # Rules of sudo and mounts are the hosts' own; nobody polls for them.
        "sudo_provider": "none",
        "autofs_provider": "none",
        # Nobody needs a list of all users; on a big directory it takes minutes.
        "enumerate": False,
        # Of what a host knows already it goes on living when no server answers.
        "cache_credentials": True,
        "fallback_homedir": f"{settings['home_root']}/%u",
        "default_shell": settings["shell"],
    }
    if any(str(uri).startswith("ldap://") for uri in settings["uris"]):
        domain["ldap_id_use_start_tls"] = True
    if settings["bind_dn"]:
        domain["ldap_default_bind_dn"] = settings["bind_dn"]
        domain["ldap_default_authtok_type"] = "password"
        domain["ldap_default_authtok"] = password
    if domain["access_provider"] == "ldap":
        domain["ldap_access_order"] = "filter"
        domain["ldap_access_filter"] = settings["access_filter"].strip()
    domain |= settings["settings"]
    sections = {
        "sssd": {"domains": settings["domain"]},
        f"domain/{settings['domain']}": domain,
    }
    body = "\n".join(
        "\n".join([f"[{name}]", *(f"{key} = {_word(value)}" for key, value in keys.items()), ""])
        for name, keys in sections.items()
    )
    return f"{HEADER}\n{body}"
