"""What NVML says of this node's GPUs, one value at a time, with a hard time limit.

A driver in trouble answers a question about one GPU with an error, or never. So each value has its
own error, each GPU is asked by a process of its own, all at once, and one that does not answer in
time is killed with its process group: what it had said until then is kept, and what it was asked
last is named. A process that sleeps inside the driver cannot be killed; it is left behind.

Function names, constants and structures are those of nvidia-ml-py (pynvml); their meaning is in
https://docs.nvidia.com/deploy/nvml-api/. Standard library only; pynvml is imported by the processes
that ask.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cluster.errors import CannotRun

_MIB = 2**20
_KILLED_S = 2.0  # how long a killed process may take to be gone
_POLL_S = 0.02
_SAMPLES = 3  # of the reasons that hold the clocks back
_SAMPLE_S = 0.1

# nvmlReturn_t
NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 25
DEPRECATED = 26

# This board, or this driver, does not know the value. That is no error, and no answer either.
_UNKNOWN_HERE = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH, DEPRECATED)
# Nothing more will be heard of the GPU.
_GONE = (GPU_IS_LOST, RESET_REQUIRED)

# NVML_GPU_FABRIC_STATE_*
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")

# NVML_GPU_RECOVERY_ACTION_*
RECOVERY_ACTIONS = (
    "none",
    "GPU reset",
    "node reboot",
    "drain P2P",
    "drain P2P and reset",
    "recover IMEX domain",
    "bus reset",
    "system reboot",
)

# nvmlClocksEventReason*, one bit each
CLOCK_REASONS = (
    "idle",
    "application clocks setting",
    "software power cap",
    "hardware slowdown",
    "sync boost",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
    "display clock setting",
    "board limit",
    "reliability",
)

Question = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class System:
    """error says why NVML could not be asked; the other values are None then."""

    error: str | None
    driver: str | None = None
    nvml: str | None = None
    cuda: int | None = None
    count: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Unknown:
    """Why there is no value: "unsupported" by this board or this driver, or an "error"."""

    name: str
    kind: str
    why: str


@dataclass(frozen=True)
class NvmlGpu:
    """What is known of one GPU.

    index     NVML's, as nvidia-smi prints it: in the order of PCI addresses
    error     why the GPU gave no more answers, or None
    seconds   from the start of its process to its last answer
    values    by the names of what was asked (QUESTIONS, MEASURES); None where one is not known
    unknown   why not; a GPU with an `error` may owe that for some
    """

    index: int
    error: str | None
    seconds: float
    values: dict[str, Any]
    unknown: list[Unknown]


# --- asking, with a time limit ---------------------------------------------------------------


def ask(limit_s: float, names: Sequence[str] | None = None) -> tuple[System, list[NvmlGpu]]:
    """What NVML says of the node and of each GPU it counts; no GPU where it cannot be asked.

    `names` are questions about a GPU, of QUESTIONS or MEASURES; all of QUESTIONS without them.
    Takes at most twice `limit_s` and a few seconds, whatever the driver does.
    """
    names = list(QUESTIONS) if names is None else list(names)
    (reply,) = _run([["system"]], limit_s)
    problem = reply.problem(limit_s)
    if problem is None:
        failed = [answer for answer in reply.answers if "error" in answer]
        problem = str(failed[0]["error"]) if failed else None
    values = {answer["name"]: answer["value"] for answer in reply.answers if "value" in answer}
    if problem is not None:
        return System(problem, seconds=reply.seconds), []
    system = System(None, **values, seconds=reply.seconds)
    gpus = range(system.count or 0)
    replies = _run([["gpu", str(index), *names] for index in gpus], limit_s)
    answers = zip(gpus, replies, strict=True)
    return system, [_gpu(index, names, reply, limit_s) for index, reply in answers]


def mig_uuids(limit_s: float) -> list[str]:
    """All MIG devices of the node, GPU after GPU. Raises CannotRun when NVML lists none."""
    system, gpus = ask(limit_s / 2, ["mig_instances"])
    uuids = [item["uuid"] for gpu in gpus for item in gpu.values["mig_instances"] or ()]
    if not uuids:
        raise CannotRun(
            f"NVML lists no instance of MIG{f': {system.error}' if system.error else ''}"
        )
    return uuids


def _gpu(index: int, names: Sequence[str], reply: _Said, limit_s: float) -> NvmlGpu:
    error = reply.problem(limit_s)
    values: dict[str, Any] = dict.fromkeys(names)
    unknown = []
    for answer in reply.answers:
        name = str(answer["name"])
        if "value" in answer:
            values[name] = answer["value"]
        elif answer["kind"] == "gone":
            error = error or str(answer["error"])
        else:
            unknown.append(Unknown(name, str(answer["kind"]), str(answer["error"])))
    return NvmlGpu(index, error, reply.seconds, values, unknown)


class Watch:
    """Asks all GPUs again and again what changes as they work, in a process of its own."""

    def __init__(self, limit_s: float, pause_s: float = _POLL_S) -> None:
        """Begins. The process ends by itself after `limit_s`, or with the one that started it. It
        sleeps for `pause_s` each time that it has asked all GPUs.
        """
        self._began = time.monotonic()
        self._process, self._output = _start(["watch", str(limit_s), str(pause_s)])

    def begun(self, limit_s: float) -> bool:
        """Waits until the first GPU has answered; False where none does in time."""
        deadline = time.monotonic() + limit_s
        while b'"gpu"' not in os.pread(self._output, 4096, 0):
            if time.monotonic() > deadline or self._process.poll() is not None:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self) -> list[dict[str, Any]]:
        """Ends the process. What it saw: {"gpu": index, "at": time.monotonic(), "generation": …,
        "width": …, "sm_mhz": …, "reasons": …, "power_mw": …, "temperature_c": …}, or with "error"
        in the place of all; None for what a board or its driver does not know.
        """
        status = self._process.poll()
        if status is None:
            _kill(self._process)
        return _read(self._output, status, time.monotonic() - self._began).answers


@dataclass(frozen=True)
class _Said:
    """What one process said, line by line, and how it ended: None while it had to be killed."""

    answers: list[dict[str, Any]]
    pending: str | None  # what it was asked last, without an answer
    done: bool
    status: int | None
    seconds: float

    def problem(self, limit_s: float) -> str | None:
        """Why this is not all that was asked, or None."""
        if self.done:
            return None
        when = f" when it was asked for {self.pending}" if self.pending else ""
        if self.status is None:
            return f"NVML did not answer within {limit_s:g} s{when}"
        how = f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"
        return f"the process that asks NVML ended with {how}{when}"


# With -I nothing but this says where the module is: a folder, or an archive in memory.
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from cluster.readers import nvml; nvml.answer(sys.argv[2:])"
)


def _run(questions: Iterable[Sequence[str]], limit_s: float) -> list[_Said]:
    """One process for each of the questions, all at once, and what each said in time."""
    started = time.monotonic()
    processes = [_start(question) for question in questions]
    ended: dict[int, float] = {}
    while len(ended) < len(processes):
        now = time.monotonic() - started
        for number, (process, _) in enumerate(processes):
            if number not in ended and process.poll() is not None:
                ended[number] = now
        if now > limit_s:
            break
        time.sleep(_POLL_S)
    replies = []
    for number, (process, output) in enumerate(processes):
        status = process.poll()
        if status is None:
            _kill(process)
        replies.append(_read(output, status, ended.get(number, time.monotonic() - started)))
    return replies


def _start(question: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    # This program may lie in an archive that only this process has open.
    own = f"/proc/{os.getpid()}/"
    path = json.dumps([entry.replace("/proc/self/", own) for entry in sys.path])
    # In memory: a full disk must not hide what NVML says.
    output = os.memfd_create("nvml")
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _CHILD, path, *question],
        stdin=subprocess.DEVNULL,
        stdout=output,
        start_new_session=True,
    )
    return process, output


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)
    # One that sleeps inside the driver stays; Popen would wait for it when it is forgotten.
    if process.returncode is None:
        process.returncode = -signal.SIGKILL


def _read(output: int, status: int | None, seconds: float) -> _Said:
    os.lseek(output, 0, os.SEEK_SET)
    with os.fdopen(output, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    answers: list[dict[str, Any]] = []
    pending, done = None, False
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by the kill
        if not isinstance(entry, dict):
            continue
        if "ask" in entry:
            pending = str(entry["ask"])
        elif "done" in entry:
            done = True
        else:
            answers.append(entry)
            pending = None
    return _Said(answers, pending, done, status, round(seconds, 3))


# --- being asked: the process that may hang --------------------------------------------------


def answer(arguments: Sequence[str]) -> None:
    """Writes a line before each call and one after it, and "done" after the last.

    arguments: "system"; "gpu", an index and names of questions; "watch", for how many
    seconds, and how many lie between two rounds.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        _say(name="pynvml", kind="error", error=f"pynvml cannot be imported: {error}")
        _say(done=True)
        return
    try:
        _say(ask="nvmlInit")
        nvml.nvmlInit()
        if arguments[0] == "system":
            _answer_system(nvml)
        elif arguments[0] == "watch":
            _watch(nvml, float(arguments[1]), float(arguments[2]))
        else:
            _answer_gpu(nvml, int(arguments[1]), arguments[2:])
    except nvml.NVMLError as error:
        _say(name="gpu", kind="gone", error=_sentence(error))
    _say(done=True)
    # Without nvmlShutdown, which can hang too: the process ends here.
    os._exit(0)


def _answer_system(nvml: Any) -> None:
    for name, question in SYSTEM.items():
        _say(ask=name)
        _say(name=name, value=question(nvml))


def _answer_gpu(nvml: Any, index: int, names: Sequence[str]) -> None:
    _say(ask="its handle")
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    for name in names:
        _say(ask=name)
        try:
            value = _ASKED[name](nvml, handle)
        except nvml.NVMLError as error:
            kind = "unsupported" if error.value in _UNKNOWN_HERE else "error"
            if error.value in _GONE:
                kind = "gone"
            _say(name=name, kind=kind, error=_sentence(error))
            if kind == "gone":
                return
        except AttributeError:  # a pynvml that is older than the question
            _say(name=name, kind="unsupported", error=f"this pynvml has no {name}")
        except (OSError, TypeError, UnicodeDecodeError, ValueError) as error:
            _say(name=name, kind="error", error=f"{type(error).__name__}: {error}")
        else:
            _say(name=name, value=value)


def _watch(nvml: Any, limit_s: float, pause_s: float) -> None:
    """Every GPU's link, clock, power and heat, until nobody wants to know any more."""
    parent, deadline = os.getppid(), time.monotonic() + limit_s
    gpus = range(nvml.nvmlDeviceGetCount())
    while os.getppid() == parent and time.monotonic() < deadline:
        for index in gpus:
            reading: dict[str, Any] = {"gpu": index}
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                reading["generation"] = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
                reading["width"] = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
                kind = nvml.NVML_CLOCK_SM
                reading["sm_mhz"] = _maybe(nvml, nvml.nvmlDeviceGetClockInfo, handle, kind)
                reading["reasons"] = _maybe(
                    nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle
                )
                reading["power_mw"] = _maybe(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
                sensor = nvml.NVML_TEMPERATURE_GPU
                heat = nvml.nvmlDeviceGetTemperature
                reading["temperature_c"] = _maybe(nvml, heat, handle, sensor)
            except nvml.NVMLError as error:
                reading = {"gpu": index, "error": _sentence(error)}
            _say(**reading, at=time.monotonic())
        time.sleep(pause_s)


def _say(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _sentence(error: Any) -> str:
    return f"NVML: {error} (code {error.value})"


def _text(value: str | bytes) -> str:
    # pynvml before 11.5 answers in bytes
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# --- the questions ---------------------------------------------------------------------------


def _ecc(kind: str, since: str) -> Question:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"), getattr(nvml, f"NVML_{since}_ECC")
    )


def _ecc_sram(since: str) -> Question:
    return lambda nvml, gpu: nvml.nvmlDeviceGetMemoryErrorCounter(
        gpu,
        nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        getattr(nvml, f"NVML_{since}_ECC"),
        nvml.NVML_MEMORY_LOCATION_SRAM,
    )


def _on(state: int) -> str:
    return "on" if state else "off"


def _yes(state: int) -> str:
    return "yes" if state else "no"


def _remapped_rows(nvml: Any, gpu: Any) -> dict[str, int | str]:
    correctable, uncorrectable, pending, failure = nvml.nvmlDeviceGetRemappedRows(gpu)[:4]
    return {
        "correctable": correctable,
        "uncorrectable": uncorrectable,
        "pending": _yes(pending),
        "failure": _yes(failure),
    }


def _retired_pages(nvml: Any, gpu: Any) -> dict[str, int | str]:
    """Of boards before Ampere."""
    causes = (
        nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    single, double = (len(nvml.nvmlDeviceGetRetiredPages(gpu, cause)) for cause in causes)
    pending = _yes(nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu))
    return {"single_bit": single, "double_bit": double, "pending": pending}


def _field(nvml: Any, gpu: Any, number: int, link: int | None = None) -> int:
    (field,) = nvml.nvmlDeviceGetFieldValues(gpu, [number if link is None else (number, link)])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    members = {
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    }
    if field.valueType not in members:
        raise ValueError(f"field {number} is of type {field.valueType}")
    return int(getattr(field.value, members[field.valueType]))


def _recovery_action(nvml: Any, gpu: Any) -> str:
    """Of drivers that have this field (230); those of 535 to 560 are older than it."""
    try:
        number = _field(nvml, gpu, nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    except nvml.NVMLError as error:
        # An older driver may call a field that it does not know an argument that is wrong.
        if error.value == nvml.NVML_ERROR_INVALID_ARGUMENT:
            raise nvml.NVMLError(NOT_SUPPORTED) from error
        raise
    return RECOVERY_ACTIONS[number] if number < len(RECOVERY_ACTIONS) else f"action {number}"


# By name: a counter of each link that NVLink 1 to 4 have, and a field that NVLink 5 has instead.
_LINK_COUNTERS = {
    "replay": "NVML_NVLINK_ERROR_DL_REPLAY",
    "recovery": "NVML_NVLINK_ERROR_DL_RECOVERY",
    "crc_flit": "NVML_NVLINK_ERROR_DL_CRC_FLIT",
    "crc_data": "NVML_NVLINK_ERROR_DL_CRC_DATA",
}
_LINK_FIELDS = {
    "recovery_failed": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "recovery_successful": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
}
_NOT_COUNTED = dict.fromkeys((*_LINK_COUNTERS, *_LINK_FIELDS))


def _nvlinks(nvml: Any, gpu: Any) -> list[dict[str, Any]]:
    """Each link that the board has: state ("up", "down" or an error), version, error counters.

    A board without NVLink has none. The number of a link that a board does not have is an invalid
    argument on those that have others, and not supported on those that have none.
    """
    links: list[dict[str, Any]] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            # 2 is a link that sleeps: it is up, and wakes with the traffic
            up = bool(nvml.nvmlDeviceGetNvLinkState(gpu, link))
            version = _maybe(nvml, nvml.nvmlDeviceGetNvLinkVersion, gpu, link)
            errors = _link_counters(nvml, gpu, link) if up else _NOT_COUNTED
            status = {"state": "up" if up else "down", "version": version, "errors": errors}
        except nvml.NVMLError as error:
            if error.value in _GONE:
                raise
            if error.value in (nvml.NVML_ERROR_INVALID_ARGUMENT, *_UNKNOWN_HERE):
                continue
            status = {"state": _sentence(error), "version": None, "errors": _NOT_COUNTED}
        links.append({"link": link, **status})
    return links


def _link_counters(nvml: Any, gpu: Any, link: int) -> dict[str, int | None]:
    """What a link counted; None for what its generation does not count."""
    counts: dict[str, int | None] = {}
    for name, constant in _LINK_COUNTERS.items():
        code = getattr(nvml, constant)
        counts[name] = _maybe(nvml, nvml.nvmlDeviceGetNvLinkErrorCounter, gpu, link, code)
    for name, constant in _LINK_FIELDS.items():
        code = getattr(nvml, constant, None)
        counts[name] = None if code is None else _maybe(nvml, _field, nvml, gpu, code, link)
    return counts


def _maybe(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's answer, or None where this board or driver does not know it."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value not in (nvml.NVML_ERROR_INVALID_ARGUMENT, *_UNKNOWN_HERE):
            raise
        return None


def _fabric(nvml: Any, gpu: Any) -> dict[str, Any]:
    """How far the board has joined the NVSwitch fabric; health bits where the driver has them."""
    attempts = (
        ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
    )
    unknown: Exception | None = None
    for kind, function in attempts:
        try:
            info = getattr(nvml, kind)()
            getattr(nvml, function)(gpu, ctypes.byref(info))
        except AttributeError as error:
            unknown = unknown or error
        except nvml.NVMLError as error:
            # A driver that does not know the version may call it an argument that is wrong.
            if error.value not in (nvml.NVML_ERROR_INVALID_ARGUMENT, *_UNKNOWN_HERE):
                raise
            unknown = error
        else:
            state = int(info.state)
            named = FABRIC_STATES[state] if state < len(FABRIC_STATES) else f"state {state}"
            return {
                "state": named,
                "status": int(info.status),
                "clique": int(info.cliqueId),
                "health": int(info.healthMask) if hasattr(info, "healthMask") else None,
            }
    assert unknown is not None
    raise unknown


def _clock(function: str, kind: str) -> Question:
    return lambda nvml, gpu: getattr(nvml, function)(gpu, getattr(nvml, f"NVML_CLOCK_{kind}"))


def _clock_reasons(nvml: Any, gpu: Any) -> dict[str, Any]:
    """What holds the clocks back: the bits of every sample, those of any, and their names.

    A hardware slowdown also shows for a moment when the clocks change (nvml.h), so one sample
    proves none.
    """
    read = getattr(
        nvml,
        "nvmlDeviceGetCurrentClocksEventReasons",
        getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None),
    )
    if read is None:
        raise AttributeError("clock reasons")
    try:
        samples = [read(gpu)]
    except nvml.NVMLError as error:
        if error.value != FUNCTION_NOT_FOUND:  # a driver before 535 has the old name alone
            raise
        read = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        samples = [read(gpu)]
    for _ in range(_SAMPLES - 1):
        time.sleep(_SAMPLE_S)
        samples.append(read(gpu))
    every, some = samples[0], 0
    for sample in samples:
        every, some = every & sample, some | sample
    return {"always": every, "sometimes": some, "reasons": ", ".join(clock_reasons(some))}


def clock_reasons(mask: int) -> list[str]:
    """The names of the bits that are set."""
    names = []
    for bit in range(mask.bit_length()):
        if mask >> bit & 1:
            names.append(CLOCK_REASONS[bit] if bit < len(CLOCK_REASONS) else f"bit {bit}")
    return names


def _threshold(kind: str) -> Question:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureThreshold(
        gpu, getattr(nvml, f"NVML_TEMPERATURE_THRESHOLD_{kind}")
    )


def _mig_devices(nvml: Any, gpu: Any) -> list[Any]:
    """Handles of the GPU's MIG devices. NVML gives them to every user, unlike GPU instances."""
    handles = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handles.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:
                raise
    return handles


def _mig_instances(nvml: Any, gpu: Any) -> list[dict[str, str]]:
    """Name and UUID of each MIG device; the name ends with its profile."""
    return [
        {
            "name": _text(nvml.nvmlDeviceGetName(device)),
            "uuid": _text(nvml.nvmlDeviceGetUUID(device)),
        }
        for device in _mig_devices(nvml, gpu)
    ]


def _parts(nvml: Any, gpu: Any) -> list[Any]:
    """The GPU itself, or its MIG devices where MIG is on: none, where none was made.

    With MIG on NVML sums memory and processes up for a privileged user alone; those of one device
    it tells to everybody (nvmlDeviceGetMemoryInfo, nvmlDeviceGetComputeRunningProcesses).
    """
    mode = _maybe(nvml, nvml.nvmlDeviceGetMigMode, gpu)
    return _mig_devices(nvml, gpu) if mode and mode[0] else [gpu]


def _memory(member: str) -> Question:
    def total(nvml: Any, gpu: Any) -> int:
        parts = [nvml.nvmlDeviceGetMemoryInfo(part) for part in _parts(nvml, gpu) or [gpu]]
        return int(sum(getattr(part, member) for part in parts) // _MIB)

    return total


def _processes(nvml: Any, gpu: Any) -> list[dict[str, Any]]:
    """Process id, name and MiB of each process with a CUDA context; None where NVML hides it."""
    processes = []
    parts = _parts(nvml, gpu)
    running = (nvml.nvmlDeviceGetComputeRunningProcesses(part) for part in parts)
    for process in itertools.chain.from_iterable(running):
        try:
            name = _text(nvml.nvmlSystemGetProcessName(process.pid)) or None
        except nvml.NVMLError:  # it ended meanwhile, or is another user's
            name = None
        used = process.usedGpuMemory
        memory = None if used is None else used // _MIB
        processes.append({"pid": process.pid, "name": name, "memory_mb": memory})
    return processes


def _utilization(nvml: Any, gpu: Any) -> dict[str, int]:
    """Percent of the last sample period in which a kernel ran, and memory was read or written."""
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return {"gpu": rates.gpu, "memory": rates.memory}


def _framebuffer(nvml: Any, gpu: Any) -> dict[str, int]:
    """MiB of the whole board, as DCGM counts them: what the driver reserves is not used."""
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
    return {name: getattr(memory, name) // _MIB for name in ("free", "used", "reserved")}


def _mig_memory(nvml: Any, gpu: Any) -> list[dict[str, Any]]:
    """MiB of each MIG device, with the number of its GPU instance and its name."""
    rows = []
    for device in _mig_devices(nvml, gpu):
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        name, number = nvml.nvmlDeviceGetName(device), nvml.nvmlDeviceGetGpuInstanceId(device)
        sizes = {"free": memory.free // _MIB, "used": memory.used // _MIB}
        rows.append({"instance": number, "name": _text(name), **sizes})
    return rows


SYSTEM: dict[str, Callable[[Any], Any]] = {
    "driver": lambda nvml: _text(nvml.nvmlSystemGetDriverVersion()),
    "nvml": lambda nvml: _text(nvml.nvmlSystemGetNVMLVersion()),
    "cuda": lambda nvml: nvml.nvmlSystemGetCudaDriverVersion_v2(),
    "count": lambda nvml: nvml.nvmlDeviceGetCount(),
}

# Milliwatts, MHz, °C and MiB; what a name does not say stands at its function above.
QUESTIONS: dict[str, Question] = {
    "name": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "uuid": lambda nvml, gpu: _text(nvml.nvmlDeviceGetUUID(gpu)),
    "serial": lambda nvml, gpu: _text(nvml.nvmlDeviceGetSerial(gpu)),
    "minor": lambda nvml, gpu: nvml.nvmlDeviceGetMinorNumber(gpu),
    "pci": lambda nvml, gpu: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId),
    "vbios": lambda nvml, gpu: _text(nvml.nvmlDeviceGetVbiosVersion(gpu)),
    "inforom": lambda nvml, gpu: _text(nvml.nvmlDeviceGetInforomImageVersion(gpu)),
    "gsp_firmware": lambda nvml, gpu: _text(nvml.nvmlDeviceGetGspFirmwareVersion(gpu)),
    "recovery_action": _recovery_action,
    "memory_total_mb": _memory("total"),
    "memory_used_mb": _memory("used"),
    "bar1_total_mb": lambda nvml, gpu: nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total // _MIB,
    "ecc": lambda nvml, gpu: _on(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "ecc_pending": lambda nvml, gpu: _on(nvml.nvmlDeviceGetEccMode(gpu)[1]),
    "ecc_default": lambda nvml, gpu: _on(nvml.nvmlDeviceGetDefaultEccMode(gpu)),
    "ecc_volatile_uncorrected": _ecc("UNCORRECTED", "VOLATILE"),
    "ecc_volatile_corrected": _ecc("CORRECTED", "VOLATILE"),
    "ecc_aggregate_uncorrected": _ecc("UNCORRECTED", "AGGREGATE"),
    "ecc_aggregate_corrected": _ecc("CORRECTED", "AGGREGATE"),
    "ecc_volatile_corrected_sram": _ecc_sram("VOLATILE"),
    "ecc_aggregate_corrected_sram": _ecc_sram("AGGREGATE"),
    "remapped_rows": _remapped_rows,
    "retired_pages": _retired_pages,
    "pcie_generation": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_generation_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie_generation_gpu": lambda nvml, gpu: nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu),
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "pcie_width_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    "pcie_replays": lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
    "nvlinks": _nvlinks,
    "fabric": _fabric,
    "clock_sm_mhz": _clock("nvmlDeviceGetClockInfo", "SM"),
    "clock_sm_max_mhz": _clock("nvmlDeviceGetMaxClockInfo", "SM"),
    "clock_sm_app_mhz": _clock("nvmlDeviceGetApplicationsClock", "SM"),
    "clock_sm_app_default_mhz": _clock("nvmlDeviceGetDefaultApplicationsClock", "SM"),
    "clock_memory_mhz": _clock("nvmlDeviceGetClockInfo", "MEM"),
    "clock_memory_max_mhz": _clock("nvmlDeviceGetMaxClockInfo", "MEM"),
    "clock_reasons": _clock_reasons,
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
        gpu, nvml.NVML_TEMPERATURE_GPU
    ),
    "temperature_slowdown_c": _threshold("SLOWDOWN"),
    "temperature_shutdown_c": _threshold("SHUTDOWN"),
    "power_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),
    "power_limit_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu),
    "power_limit_default_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu),
    "power_limit_max_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[
        1
    ],
    "persistence": lambda nvml, gpu: _on(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "mig": lambda nvml, gpu: _on(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "mig_pending": lambda nvml, gpu: _on(nvml.nvmlDeviceGetMigMode(gpu)[1]),
    "mig_instances": _mig_instances,
    "processes": _processes,
}

# What changes by the second, for exporters; no check asks it. Percent, millijoules, °C and MiB.
MEASURES: dict[str, Question] = {
    "utilization": _utilization,
    "framebuffer": _framebuffer,
    "mig_memory": _mig_memory,
    "energy_mj": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),
    "temperature_memory_c": lambda nvml, gpu: _field(nvml, gpu, nvml.NVML_FI_DEV_MEMORY_TEMP),
    "temperature_memory_max_c": _threshold("MEM_MAX"),
}

_ASKED = {**QUESTIONS, **MEASURES}
