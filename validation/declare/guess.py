"""The GPUs and the fabric of nodes that are alike, out of Slurm's words and a look at one."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster import contract, mig
from cluster.declaration import Gpus
from cluster.text import printable
from validation import local, thresholds
from validation.checks import infiniband
from validation.declare.kinds import Look, Undeclarable

UNSAID_FABRIC = "ethernet"
_PROFILE = re.compile(r"(?:^|_)(\d+g\.\d+gb(?:\+[a-z.]+)*)$")
_NO_GPU = Gpus("none", 0)


# --- GPUs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guess:
    """A part of a node's declaration: what was seen, what was assumed, and what to look at."""

    gpus: Gpus = _NO_GPU
    fabric: str = UNSAID_FABRIC
    seen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()


def request_of(gres: Mapping[str, int]) -> str:
    """How Slurm is asked for all of them."""
    return ",".join(f"gpu:{kind}:{n}" if kind else f"gpu:{n}" for kind, n in gres.items())


def guess_gpus(gres: Counter[str], look: Look | None) -> Guess:
    """The GPUs of a kind. Raises Undeclarable for what a declaration has no words for."""
    total = gres.total()
    names = Counter(look.names) if look else Counter[str]()
    if not total:
        hidden = f"the node shows {counted(names)}, and Slurm has no Gres for it"
        return Guess(comments=(hidden,) if names else ())
    models = {local.model_of(name) for name in names}
    if len(models) > 1:
        raise Undeclarable(f"has GPUs of more than one model ({counted(names)})")
    profiles = {kind: _PROFILE.search(kind) for kind in gres}
    if any(profiles.values()):
        return _instances(gres, names, models)
    guess = _whole(gres, models)
    seen = names.total()
    if look and seen != total:
        why = f" ({printable(look.nvml, 80)})" if look.nvml else ""
        wrong = f"Slurm has {total} GPUs, NVML on the node lists {seen}{why}"
        guess = replace(guess, comments=(*guess.comments, wrong))
    return guess


def _whole(gres: Counter[str], models: set[str]) -> Guess:
    total = gres.total()
    seen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    if models:
        model, seen = models.pop(), ("model",)
    elif len(gres) > 1:
        raise Undeclarable(f"has GPUs of more than one type ({request_of(gres)})")
    else:
        (kind,) = gres
        named = _model_named(kind)
        model = named or re.sub(r"[^A-Za-z0-9_.-]+", "-", kind) or "unknown"
        assumed = () if named else ("model",)
    gpus = Gpus(model, total)
    request = request_of(gres)
    gpus = gpus if gpus.request == request else replace(gpus, gres=request)
    if not assumed:
        return Guess(gpus, seen=seen)
    known = [name for name in thresholds.shipped_models() if name != "cpu"]
    near = [name for name in known if name.startswith(model)] or known
    comment = f"no thresholds are known for a model {model}; there are {', '.join(near)}"
    return Guess(gpus, assumed=assumed, comments=(comment,))


def _instances(gres: Counter[str], names: Counter[str], models: set[str]) -> Guess:
    """GPUs that are cut into instances of MIG; Slurm counts these, and not the GPUs."""
    whole = [kind for kind in gres if not _PROFILE.search(kind)]
    if whole:
        raise Undeclarable(f"has whole GPUs beside instances of MIG ({request_of(gres)})")
    count = names.total()
    if not count:
        raise Undeclarable(
            f"has instances of MIG ({request_of(gres)}), and of how many GPUs only a look tells"
        )
    each: Counter[str] = Counter()
    for kind, number in gres.items():
        match = _PROFILE.search(kind)
        assert match is not None  # none is whole
        if number % count or not mig.PROFILE.fullmatch(match[1]):
            raise Undeclarable(f"has {number} instances {kind} on {count} GPUs, unlike each other")
        each[match[1]] += number // count
    gpus = Gpus(models.pop(), count, mig=tuple(sorted(each.items())), gres=request_of(gres))
    return Guess(gpus, seen=("model", "mig"))


def _model_named(kind: str) -> str | None:
    """The model that a GRES type names: by our word, or by NVML's as AutoDetect writes it."""
    plain = _plain(kind)
    for model in thresholds.shipped_models():
        known = thresholds.load(model).model
        names = known.nvml_names if known else ()
        if kind == model or plain in map(_plain, names):
            return model
    return kind if kind == "virtual" else None


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def counted(names: Counter[str]) -> str:
    return ", ".join(f"{number} × {name}" for name, number in names.items())


# --- the fabric ------------------------------------------------------------------------------


def guess_fabric(look: Look | None) -> Guess:
    """The fabric by the ports that are up: InfiniBand before RoCE, the lowest rate of several."""
    if look is None:
        return Guess(assumed=("fabric",))
    up = [(layer, rate) for layer, state, rate in look.ports if state.endswith("ACTIVE")]
    down = len(look.ports) - len(up)
    comments: tuple[str, ...] = (
        (f"{down} of {len(look.ports)} RDMA ports are not up",) if down else ()
    )
    for layer in (infiniband.INFINIBAND, infiniband.ETHERNET):
        rates = Counter(rate for other, rate in up if other == layer)
        if not rates:
            continue
        if len(rates) > 1:
            several = f"ports of several rates ({counted(rates)}): name those meant in NCCL_IB_HCA"
            comments += (several,)
        words = {_word(layer, rate) for rate in rates}
        known = [word for word in contract.load().fabrics if word in words]
        if known:
            lowest = min(known, key=_rate)
            return Guess(fabric=lowest, seen=("fabric",), comments=comments)
        comments += (f"no word for {layer} of {', '.join(rates)}",)
    return Guess(seen=("fabric",), comments=comments)


def _rate(word: str) -> int:
    fabric = infiniband.declared(word)
    return (fabric and fabric.rate) or 0


def _word(layer: str, rate: str) -> str:
    """The contract's word for a port.

    >>> _word("InfiniBand", "200 Gb/sec (2X NDR)"), _word("Ethernet", "100 Gb/sec (4X EDR)")
    ('ib_ndr200', 'roce_100')
    """
    match = re.match(r"(\d+)[\d.]* Gb/sec(?: \(\dX (\w+)\))?", rate)
    if match is None:
        return ""
    if layer == infiniband.ETHERNET:
        return f"roce_{match[1]}"
    return f"ib_{(match[2] or '').lower()}{match[1]}"
