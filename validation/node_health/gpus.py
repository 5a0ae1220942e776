"""What is asked of GPUs: one pass through NVML for all checks of a run, judged by the validator's
own checks.

A run asks only what its checks need. A GPU that is lost is the matter of `gpu_driver` alone, so
that it shows once. On a node without GPUs, by declaration, nothing of this applies; where GPUs are
declared and NVML is missing, the checks fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster.readers import kernel_log, nvml, xids
from cluster.text import printable
from validation.checks import clocks, driver, ecc, mig, nvlink, pcie, processes, xid
from validation.checks.document import Document, Fields, Unusable
from validation.checks.health import (
    Finding,
    GpuValues,
    answering,
    driver_error,
    examined,
    quietly,
    read_gpus,
    summary,
)
from validation.model import Proof, Verdict, worst
from validation.node_health.config import Check, HealthSettings
from validation.node_health.node import VERDICTS
from validation.node_health.outcome import FAIL, PASS, SKIP, Outcome

BOARD = "uuid"
_MOST_BOARDS = 2


@dataclass(frozen=True)
class JudgedNode:
    """What a judgement may look at. `job_gpus` are the minor numbers of the job's GPUs, None
    outside a job: then all of the node's are meant.
    """

    config: HealthSettings
    check: Check
    document: Document
    job_gpus: frozenset[int] | None

    def whose(self) -> list[GpuValues]:
        """The GPUs that a check of leftovers is about."""
        gpus = answering(self.document)
        if self.job_gpus is None:
            return gpus
        return [gpu for gpu in gpus if _number(gpu) in self.job_gpus]


@dataclass(frozen=True)
class Builtin:
    """questions are names of nvml.QUESTIONS; judge returns what is wrong."""

    questions: tuple[str, ...]
    judge: Callable[[JudgedNode], Iterable[Finding]]
    warned_is_failed: bool = False
    whole_gpus_only: bool = False


def _number(gpu: GpuValues) -> int:
    """The number in the name of its device file, by which Slurm knows it."""
    minor = gpu.whole("minor")
    return gpu.index if minor is None else minor


def _each(
    examine: Callable[[GpuValues, HealthSettings], Iterable[Finding]],
) -> Callable[[JudgedNode], list[Finding]]:
    """Judges every GPU that answers."""

    def judge(node: JudgedNode) -> list[Finding]:
        findings: list[Finding] = []
        for gpu in answering(node.document):
            findings += examined(gpu, lambda gpu: examine(gpu, node.config))
        return findings

    return judge


def _processes(node: JudgedNode) -> list[Finding]:
    return [finding for gpu in node.whose() for finding in examined(gpu, processes.examine)]


def _memory(node: JudgedNode) -> list[Finding]:
    most = node.check.arguments["most_used_mb"]

    def examine(gpu: GpuValues) -> Iterable[Finding]:
        used = gpu.whole("memory_used_mb")
        if used is not None and used > most:
            yield Finding(Verdict.FAIL, f"{used} MiB of memory are used without a job")

    return [finding for gpu in node.whose() for finding in examined(gpu, examine)]


BUILTINS: Mapping[str, Builtin] = {
    "gpu_driver": Builtin(
        ("name", "uuid", "minor", "recovery_action", "memory_total_mb"),
        lambda node: driver.judge_gpus(node.document, node.config.gpus.count)[1],
    ),
    "gpu_ecc": Builtin(
        (
            "ecc",
            "ecc_default",
            "ecc_pending",
            "ecc_volatile_uncorrected",
            "ecc_aggregate_uncorrected",
            "remapped_rows",
            "retired_pages",
        ),
        _each(lambda gpu, config: ecc.examine(gpu)),
    ),
    "gpu_xid": Builtin(("pci",), lambda node: xid.judge_log(node.document, xids.load())),
    "gpu_pcie": Builtin(
        (
            "pcie_generation",
            "pcie_generation_max",
            "pcie_generation_gpu",
            "pcie_width",
            "pcie_width_max",
            "clock_reasons",
        ),
        _each(lambda gpu, config: pcie.examine(gpu, config.gpus.model)),
    ),
    "gpu_nvlink": Builtin(
        ("nvlinks", "fabric"), _each(lambda gpu, config: nvlink.examine(gpu, config.gpus))
    ),
    "gpu_clocks": Builtin(
        (
            "clock_reasons",
            "temperature_c",
            "temperature_slowdown_c",
            "power_limit_mw",
            "power_limit_default_mw",
        ),
        _each(lambda gpu, config: clocks.held_back(gpu)),
    ),
    "gpu_persistence": Builtin(
        ("persistence",),
        _each(lambda gpu, config: clocks.persistence(gpu)),
        warned_is_failed=True,
    ),
    "gpu_mig": Builtin(
        ("mig", "mig_pending", "mig_instances"),
        _each(lambda gpu, config: mig.examine(gpu, dict(config.gpus.mig))),
    ),
    "gpu_processes": Builtin(("minor", "processes"), _processes, whole_gpus_only=True),
    "gpu_memory": Builtin(("minor", "memory_used_mb"), _memory, whole_gpus_only=True),
}


def applies(config: HealthSettings, check: Check) -> Outcome | None:
    """Why a check does not apply, by declaration; None where it does."""
    if not config.gpus.answer:
        return Outcome(SKIP, "no GPU that NVML knows is declared")
    if config.gpus.mig and BUILTINS[str(check.builtin)].whole_gpus_only:
        return Outcome(SKIP, "jobs share the GPUs: they are cut into instances")
    return None


def read(checks: Iterable[Check], limit_s: float) -> dict[str, Any]:
    """One pass through NVML, and through the kernel's log where a check needs it."""
    builtins = {str(check.builtin) for check in checks}
    questions = {name for builtin in builtins for name in BUILTINS[builtin].questions} | {BOARD}
    # The node is asked first and then all GPUs at once, each for half of the time.
    system, gpus = nvml.ask(limit_s / 2, [name for name in nvml.QUESTIONS if name in questions])
    document = {
        "nvml": asdict(system),
        "nvml_timeout_s": limit_s / 2,
        "gpus": [asdict(gpu) for gpu in gpus],
        "kernel_log": asdict(kernel_log.read()) if "gpu_xid" in builtins else None,
    }
    # As the validator gets it: what JSON makes of it.
    return dict(json.loads(json.dumps(document)))


def judged(
    config: HealthSettings,
    checks: Sequence[Check],
    measured: Mapping[str, Any],
    job_gpus: Mapping[str, frozenset[int] | None],
) -> dict[str, Outcome]:
    """The outcome of each check, by its name."""
    document = Document(Proof((config.node,)), Fields(measured))
    return {
        check.name: _judged(JudgedNode(config, check, document, job_gpus.get(check.name)))
        for check in checks
    }


def _judged(node: JudgedNode) -> Outcome:
    builtin = BUILTINS[str(node.check.builtin)]
    silent = driver_error(node.document)
    if silent is not None and node.check.builtin != "gpu_xid":
        return Outcome(FAIL, f"NVML cannot be asked: {silent}")
    try:
        findings = list(builtin.judge(node))
    except Unusable as unusable:
        return Outcome(VERDICTS[unusable.verdict.value], str(unusable))
    verdict = VERDICTS[worst([Verdict.PASS, *(finding.verdict for finding in findings)]).value]
    wrong = [finding for finding in findings if finding.verdict is not Verdict.PASS]
    if builtin.warned_is_failed and verdict != PASS:
        verdict = FAIL
    text = summary(wrong)
    boards = _boards(node.document, wrong) if verdict == FAIL else ""
    return Outcome(verdict, f"{text} ({boards})" if boards else text)


def _boards(document: Document, findings: Iterable[Finding]) -> str:
    """Whose fault it is, whatever node the board is moved to: UUIDs, as far as NVML tells them.

    Of more than two GPUs a reason has no room, and it is hardly the boards.
    """
    failing = {finding.index for finding in findings if finding.verdict is Verdict.FAIL}
    if not 0 < len(failing - {None}) <= _MOST_BOARDS:
        return ""
    try:
        known = [quietly(gpu.text, BOARD) for gpu in read_gpus(document) if gpu.index in failing]
    except Unusable:  # a GPU that is lost tells nothing, and the finding stays
        return ""
    return ", ".join(printable(board, 60) for board in known if board)
