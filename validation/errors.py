"""Errors of reaching the cluster; those of data and usage are in cluster/errors.py.

TransportError          the login node could not be used
└── Unreachable         it did not answer at all: another one may
"""

from cluster.errors import PlumblineError


class TransportError(PlumblineError):
    """The login node could not be used."""


class Unreachable(TransportError):
    """The login node did not answer."""
