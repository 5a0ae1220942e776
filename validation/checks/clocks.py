"""Nothing slows down the GPUs of a node.

What it checks   Neither heat nor the power brake reduces the clocks, and there is no lasting
                 hardware slowdown. The temperature is below the board's slowdown threshold. The
                 application clock is at least half of the board's default. Clocks or a power limit
                 that somebody lowered less, and disabled persistence mode, are warnings.
Why it matters   A board that is too hot or lacks power runs at half its clock or less, and all
                 other GPUs of a job wait for it.
What to do       Heat: check fans, airflow and dust, then the board's heat sink. Power brake: check
                 the power supplies and the cables to the board. Limits: set or reset them with
                 nvidia-smi. Not known: this board or driver does not tell; update the driver.
                 $ ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER,CLOCK'
                 $ ssh {node} 'sudo nvidia-smi -rac; sudo nvidia-smi -rgc; sudo nvidia-smi -pm 1'
"""

from collections.abc import Iterator, Mapping

from cluster.readers.nvml import CLOCK_REASONS
from validation.checks.health import Finding, GpuValues, each_gpu, none_faulty
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "clocks"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "Heat": When(r"thermal slowdown|°C, the board slows down"),
    "Power brake": When(r"power brake|reduced: hardware slowdown"),
    "Not known": When(r"NVML does not know", ("ssh {node} 'nvidia-smi -q -d PERFORMANCE'",)),
    "Limits": When(
        r"limited by a setting|application clock|power limit|persistence mode",
        ("ssh {node} 'sudo nvidia-smi -rac; sudo nvidia-smi -rgc; sudo nvidia-smi -pm 1'",),
    ),
}

# https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlClocksEventReasons.html: these reduce the
# clocks by a factor of 2 or more, or because memory or GPU are too hot.
_THRESHOLD = none_faulty("no slowdown, and below the temperature at which the board slows down")
_HEAT_AND_BRAKE = ("software thermal slowdown", "hardware thermal slowdown", "hardware power brake")
# It also shows for a moment while the clocks change, and so counts where it lasts.
_SLOWDOWN = "hardware slowdown"
_LOWERED = "application clocks setting"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def everything(gpu: GpuValues) -> Iterator[Finding]:
        yield from examine(gpu)
        yield from lowered(gpu, rules.common.limits)

    return each_gpu(NAME, job, reply, _THRESHOLD, everything, _measures)


def examine(gpu: GpuValues) -> Iterator[Finding]:
    yield from held_back(gpu)
    yield from persistence(gpu)


def lowered(gpu: GpuValues, limits: Mapping[str, Threshold]) -> Iterator[Finding]:
    """An application clock below the board's default; boards from Hopper on need not have one."""
    now, default = gpu.whole("clock_sm_app_mhz"), gpu.whole("clock_sm_app_default_mhz")
    if now is None or not default:
        return
    verdict = limits["gpu_app_clock_share"].judge(now / default)
    if verdict is not Verdict.PASS:
        yield Finding(verdict, f"application clock {now} MHz, {default} MHz by default")


def persistence(gpu: GpuValues) -> Iterator[Finding]:
    if gpu.on("persistence") is False:
        yield Finding(Verdict.WARN, "persistence mode is off")


def held_back(gpu: GpuValues) -> Iterator[Finding]:
    """Heat, the power brake, and limits that somebody set."""
    reasons = gpu.inner("clock_reasons")
    if reasons is None:
        yield Finding(Verdict.INCONCLUSIVE, "NVML does not know what limits this board's clocks")
    else:
        always, some = reasons.whole("always"), reasons.whole("sometimes")
        engaged = [name for name in _HEAT_AND_BRAKE if _is_set(name, some)]
        if _is_set(_SLOWDOWN, always):
            engaged.append(_SLOWDOWN)
        if engaged:
            yield Finding(Verdict.FAIL, f"clocks are reduced: {', '.join(engaged)}")
        elif _is_set(_LOWERED, always):
            yield Finding(Verdict.WARN, "clocks are limited by a setting")
    now, limit = gpu.whole("temperature_c"), gpu.whole("temperature_slowdown_c")
    if now is not None and limit is not None and now >= limit:
        yield Finding(Verdict.FAIL, f"{now} °C, the board slows down from {limit} °C on")
    power, default = gpu.whole("power_limit_mw"), gpu.whole("power_limit_default_mw")
    if power is not None and default is not None and power < default:
        message = f"power limit {power / 1000:g} W, {default / 1000:g} W by default"
        yield Finding(Verdict.WARN, message)


def _is_set(reason: str, mask: int) -> bool:
    return bool(mask >> CLOCK_REASONS.index(reason) & 1)


def _measures(gpu: GpuValues) -> Iterator[Metric]:
    for name, label, unit, per in (
        ("clock_sm_mhz", "SM clock", "MHz", 1),
        ("clock_sm_max_mhz", "SM clock, most", "MHz", 1),
        ("clock_sm_app_mhz", "application clock", "MHz", 1),
        ("clock_memory_mhz", "memory clock", "MHz", 1),
        ("clock_memory_max_mhz", "memory clock, most", "MHz", 1),
        ("temperature_c", "temperature", "°C", 1),
        ("power_mw", "power", "W", 1000),
        ("power_limit_mw", "power limit", "W", 1000),
        ("power_limit_max_mw", "power limit, most", "W", 1000),
    ):
        value = gpu.whole(name)
        if value is not None:
            yield Metric(label, value if per == 1 else value / per, unit)
    if reasons := gpu.inner("clock_reasons"):
        yield Metric("clock reasons", reasons.text("reasons"))
