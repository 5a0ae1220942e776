"""What Slurm's reasons for not starting a job say about whose matter it is.

The table has every reason of Slurm 22.05 to 26.05 (src/common/job_state_reason.c); the tests hold
it against the recorded lists. A reason that a later version brings is UNKNOWN, which is nobody's
fault: a node is only ever accused of what is known to be one.
"""

import enum
import re


class Cause(enum.Enum):
    """Why a job did not start."""

    BUSY = "busy"  # others use, or are promised, what it needs
    LIMIT = "limit"  # of the user, the account or the QOS: our own jobs count against it too
    REQUEST = "request"  # Slurm will not start it as it was asked for: account, partition, time, …
    NODE = "node"  # a node that it needs cannot be used
    CLUSTER = "cluster"  # Slurm itself, or a service beside it
    UNKNOWN = "unknown"


_BUSY = """
    Resources Priority Reservation BeginTime Licenses Prolog Cleaning SchedDefer FedJobLock
    BurstBufferResources BurstBufferStageIn JobArrayTaskLimit MpiPortsBusy NvidiaImexChannels
    MaxPoweredUpNodes PowerNotAvail PowerReserved BlockFreeAction
"""

_REQUEST = """
    PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive PartitionConfig
    InvalidAccount InvalidQOS QOSNotAllowed AccountNotAllowed AccountingPolicy BadConstraints
    Constraints Dependency DependencyNeverSatisfied JobHeldAdmin JobHeldUser JobHoldMaxRequeue
    ReservationDeleted ReservationInvalid MaxMemPerLimit DeadLine InactiveLimit TimeLimit
    NonZeroExitCode RaisedSignal OutOfMemory
"""

_SILENT = "None"  # not looked at yet

_NODE = "ReqNodeNotAvail NodeDown JobLaunchFailure BlockMaxError"

_CLUSTER = "SystemFailure FrontEndDown BurstBufferOperation ResilienceRecovery InvalidReason"

# Limits are spelt by what is limited, and for whom.
_RESOURCES = ("Unknown", "Energy", "GRES", "License", "BB", "Billing", "Node")
_FIXED_LIMITS = """
    AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
    QOSJobLimit QOSResourceLimit QOSTimeLimit QOSUsageThreshold
    QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit
    QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit
    QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied QOSMaxCpuPerNode
    AssocMaxJobsLimit AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit
    AssocMaxWallDurationPerJobLimit AssocMaxSubmitJobLimit AssocMaxCpuPerNode
    MaxJobsPerAccount MaxSubmitJobsPerAccount MaxCpuPerAccount MaxMemoryPerAccount
    QOSMinMemory AssocGrpMemMinutes AssocGrpMemRunMinutes AssocMaxMemPerJob AssocMaxMemPerNode
    AssocMaxMemMinutesPerJob QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes QOSMaxMemoryPerJob
    QOSMaxMemoryPerNode QOSMaxMemoryPerUser QOSMaxMemoryMinutesPerJob
"""


def _limits() -> set[str]:
    limits = set(_FIXED_LIMITS.split())
    for group in ("QOSGrp", "AssocGrp"):
        limits |= {
            f"{group}{what}Limit"
            for what in (
                *("Cpu", "CPUMinutes", "CPURunMinutes"),
                *("Jobs", "Mem", "Node", "SubmitJobs", "Wall"),
            )
        }
        limits |= {
            f"{group}{what}{of}" for what in _RESOURCES for of in ("", "Minutes", "RunMinutes")
        }
    for policy in ("QOSMax", "AssocMax"):
        scopes = ("PerJob", "PerNode", "PerUser", "MinutesPerJob")
        limits |= {f"{policy}{what}{scope}" for what in _RESOURCES for scope in scopes}
    limits |= {f"QOSMin{what}" for what in _RESOURCES}
    limits |= {f"Max{what}PerAccount" for what in _RESOURCES}
    limits |= {
        f"Max{what}RunMinsPer{whom}"
        for what in (*_RESOURCES, "Cpu", "Memory")
        for whom in ("Account", "User")
    }
    return limits


CAUSES = {
    **dict.fromkeys(_BUSY.split(), Cause.BUSY),
    **dict.fromkeys(_REQUEST.split(), Cause.REQUEST),
    **dict.fromkeys(_NODE.split(), Cause.NODE),
    **dict.fromkeys(_SILENT.split(), Cause.UNKNOWN),
    **dict.fromkeys(_CLUSTER.split(), Cause.CLUSTER),
    **dict.fromkeys(_limits(), Cause.LIMIT),
}


def names(wanted: Cause) -> tuple[str, ...]:
    return tuple(name for name, meaning in CAUSES.items() if meaning is wanted)


# squeue prints a description instead of the reason where slurmctld keeps one (its state_desc), with
# "_" for blanks or without. Held against it in small letters, in this order.
_DESCRIBED = tuple(
    (re.compile(text), meaning)
    for text, meaning in (
        (r"nodes required for job are down", Cause.NODE),
        (r"may be reserved for other job", Cause.BUSY),
        (r"reserved for maintenance", Cause.BUSY),
        (r"unavailablenodes", Cause.NODE),
        (r"launch fail(ed|ure limit exceeded) requeued held", Cause.NODE),
        (r"user env retrieval failed requeued held", Cause.NODE),
        (r"job requeued in (held|special exit) state", Cause.REQUEST),
        (r"^reservation .*(is invalid|was deleted|has ended)$", Cause.REQUEST),
        (r"not in group permitted to use this partition", Cause.REQUEST),
        (r"^job is at or exceeds (qos|association)", Cause.LIMIT),
        (r"stage-out in progress", Cause.BUSY),
        (r"invalid burst buffer spec|delete buffer .* permission denied", Cause.REQUEST),
        (r"burst buffer|: (post run|stage-out|teardown): ", Cause.CLUSTER),
    )
)


def cause(reason: str) -> Cause:
    """Whose matter it is that a job with this reason did not start.

    >>> cause("ReqNodeNotAvail,_UnavailableNodes:gpu2")
    <Cause.NODE: 'node'>
    >>> cause("QOSMaxJobsPerUserLimit")
    <Cause.LIMIT: 'limit'>
    """
    plain = " ".join(reason.replace("_", " ").split())
    for text, meaning in _DESCRIBED:
        if text.search(plain.lower()):
            return meaning
    word = re.match(r"[A-Za-z]*", plain)
    return CAUSES.get(word.group() if word else "", Cause.UNKNOWN)


# --- a submission that was refused ---------------------------------------------------------------

# What srun says when slurmctld takes a job not at all. None of it is a node's fault, with two
# exceptions: the nodes asked for are not there as they were declared. A GRES that Slurm does not
# know at all was declared for a Slurm that is configured otherwise (slurm_errno.c).
_REFUSALS = (
    ("job violates accounting/qos policy", Cause.LIMIT),
    ("qosmaxsubmitjob", Cause.LIMIT),
    ("assocmaxsubmitjob", Cause.LIMIT),
    ("assocgrpsubmitjobs", Cause.LIMIT),
    ("qosgrpsubmitjobs", Cause.LIMIT),
    ("requested node configuration is not available", Cause.NODE),
    ("invalid node name specified", Cause.NODE),
    ("invalid generic resource (gres)", Cause.CLUSTER),
    ("invalid trackable resource (tres)", Cause.CLUSTER),
    ("unable to contact slurm controller", Cause.CLUSTER),
    ("zero bytes were transmitted or received", Cause.CLUSTER),
    ("connection refused", Cause.CLUSTER),
    ("socket timed out", Cause.CLUSTER),
    ("connection timed out", Cause.CLUSTER),
    ("authentication", Cause.CLUSTER),
    ("munge", Cause.CLUSTER),
)
LIMIT_REFUSALS = tuple(text for text, cause in _REFUSALS if cause is Cause.LIMIT)
_REFUSED = re.compile(
    r"^srun: (?:unrecognized option|(?:fatal|error): .*(?:Unable to allocate resources"
    r"|[Jj]ob submit/allocate failed|Unable to create step|Unable to confirm allocation"
    r"|Invalid|invalid|unrecognized option|unknown option|Unknown|Unable to contact)).*$",
    re.MULTILINE,
)


# How Slurm says that the user has no association with the account, or may not use it or the QOS
# there (slurm_errno.c, job_state_reason.c).
_ACCOUNT = re.compile(
    r"invalid ?(account|qos)\b|(account|qos)notallowed|invalid or unknown association",
    re.IGNORECASE,
)
ACCOUNT_HINT = (
    "give the user an account, in slurm_users or by sacctmgr, or name one of the user's, with "
    "--account or in validation_submission (docs/operate/accounting.md)"
)


def of_account(message: str) -> bool:
    """Whether a refusal or a reason is about the user's account, or the QOS in it.

    >>> of_account("Invalid account or account/partition combination specified")
    True
    >>> of_account("QOSMaxJobsPerUserLimit")
    False
    """
    return _ACCOUNT.search(message) is not None


def refusal(stderr: str) -> tuple[str, Cause] | None:
    """The sentence with which srun ended because Slurm took no job, and whose matter that is.

    >>> refusal("srun: error: Unable to allocate resources: Invalid partition name specified")
    ('Unable to allocate resources: Invalid partition name specified', <Cause.REQUEST: 'request'>)
    """
    match = _REFUSED.search(stderr)
    if match is None:
        return None
    sentence = re.sub(r"^srun: (?:(?:fatal|error): )?", "", match.group())
    low = stderr.lower()
    meaning = next((cause for text, cause in _REFUSALS if text in low), Cause.REQUEST)
    return sentence, meaning
