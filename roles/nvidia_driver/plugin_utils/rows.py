"""What a node's driver should be and what it is, as rows of the table that is verified.

From what NVML answered (action `nvml`), and what the node has (module `nvidia_driver_state`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped
from playbooks.module_utils.package_version import begins

COMPONENT = "nvidia_driver"
REBOOT = "reboot the node (playbooks/reboot-nodes.yml drains it first)"
APPLY = "apply the role"

Rows = Iterator[dict[str, str]]


def rows(
    answer: Mapping[str, Any], state: Mapping[str, Any], expected: Mapping[str, Any]
) -> list[dict[str, str]]:
    """`expected`: source, version, modules, model, names, count, hold, storage, problems."""
    wrong = [
        verify_row(problem, COMPONENT, "declaration", "one that can be", "correct the inventory")
        for problem in expected["problems"]
    ]
    if wrong:
        return wrong
    if expected["source"] == "none":
        why = "the node declares no GPU that a driver would answer for"
        return [verify_skipped(COMPONENT, "driver", why)]
    return [
        *(_packages(state, expected) if expected["source"] != "preinstalled" else ()),
        *_module(state, expected),
        *_nvml(answer, expected),
    ]


def _packages(state: Mapping[str, Any], expected: Mapping[str, Any]) -> Rows:
    wrong = [
        f"{word} {', '.join(names)}"
        for word, names in (("without", state["change"]), ("with", state["others"]))
        if names
    ]
    actual = " and ".join(wrong) or "installed"
    yield verify_row(actual, COMPONENT, "packages", "installed", APPLY)
    if expected["hold"]:
        free = ", ".join(state["hold"])
        yield verify_row(
            f"not for {free}" if free else "set", COMPONENT, "hold on upgrades", "set", APPLY
        )


def _module(state: Mapping[str, Any], expected: Mapping[str, Any]) -> Rows:
    if state["nouveau"]:
        yield verify_row("loaded", COMPONENT, "nouveau", "not loaded", REBOOT)
    if state["module"]:
        advice = REBOOT if state["loaded"] else "see journalctl --dmesg for why it is not loaded"
        actual = state["loaded"] or "not loaded"
        yield verify_row(actual, COMPONENT, "loaded kernel module", state["module"], advice)
    elif expected["modules"]:
        advice = "see dkms status: the module is not built for the kernel that runs"
        yield verify_row("", COMPONENT, "installed kernel module", expected["version"], advice)
    if expected["modules"]:
        advice = f"{APPLY}, then {REBOOT}" if state["loaded"] else ""
        actual = state["loaded_modules"]
        yield verify_row(actual, COMPONENT, "kind of kernel module", expected["modules"], advice)
    if expected["storage"]:
        actual = "loaded" if state["storage"] else "not loaded"
        advice = "see dkms status, and what modprobe nvidia_fs says"
        yield verify_row(actual, COMPONENT, "nvidia_fs (GPUDirect Storage)", "loaded", advice)


def _nvml(answer: Mapping[str, Any], expected: Mapping[str, Any]) -> Rows:
    state = answer["error"] or "answers"
    advice = "see journalctl --dmesg and nvidia-smi on the node"
    yield verify_row(state, COMPONENT, "NVML", "answers", advice)
    if answer["error"]:
        return
    if version := expected["version"]:
        actual = str(answer["driver"])
        shown = version if begins(actual, version) else actual
        advice = f"{APPLY}, or set nvidia_driver_branch to what the node has"
        yield verify_row(shown, COMPONENT, "driver", version, advice)
    else:
        yield verify_skipped(COMPONENT, "driver", "no branch is declared (nvidia_driver_branch)")
    advice = "see lspci, and journalctl --dmesg for Xid 79, or correct node_gpus.count"
    yield verify_row(answer["count"], COMPONENT, "number of GPUs", expected["count"], advice)
    gpus = answer["gpus"]
    for gpu in gpus:
        if gpu["error"]:
            what = f"GPU {gpu['index']}"
            yield verify_row(gpu["error"], COMPONENT, what, "answers", "see its Xid messages")
    answering = [gpu for gpu in gpus if not gpu["error"]]
    yield _model([gpu["values"]["name"] for gpu in answering], expected)
    off = [str(gpu["index"]) for gpu in answering if gpu["values"]["persistence"] != "on"]
    advice = "see systemctl status nvidia-persistenced"
    actual = f"off on GPU {', '.join(off)}" if off else "on"
    yield verify_row(actual if answering else "", COMPONENT, "persistence mode", "on", advice)


def _model(products: Sequence[str | None], expected: Mapping[str, Any]) -> dict[str, str]:
    """One row for the models of all GPUs that answer: the declared one, or what they are."""
    names, model = expected["names"], expected["model"]
    strange = sorted({name or "a GPU without a name" for name in products if name not in names})
    if names:
        wanted, advice = model, f"{model} is known as {', '.join(names)}; correct node_gpus.model"
    else:
        wanted = f"a name of {model}"
        advice = "nobody knows one; set nvidia_driver_product_names to what nvidia-smi -L prints"
    shown = ", ".join(strange) if strange else model if products else ""
    return verify_row(shown, COMPONENT, "model of all GPUs", wanted, advice)
