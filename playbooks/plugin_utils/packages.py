"""A row of the verify table for packages that must have one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from playbooks.filter_plugins.verify import verify_row
from playbooks.module_utils.package_version import fits


def version_row(
    component: str, installed: Mapping[str, str], names: Sequence[str], version: str, advice: str
) -> dict[str, str]:
    """PASS when all are installed in one version, and in the one that is wanted if one is.

    `installed` has the version of each installed package under `package:NAME`. A wanted version may
    leave out epoch and revision, as it may for the module exact_packages.
    """
    versions = [installed.get(f"package:{name}", "") for name in names]
    actual = ", ".join(dict.fromkeys(each or "none" for each in versions))
    if len(set(versions)) == 1 and versions[0] and (not version or fits(actual, version)):
        return verify_row(actual, component, "version of the packages", actual, advice)
    return verify_row(actual, component, "version of the packages", version or "one", advice)
