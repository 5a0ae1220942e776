"""What runs in a process of its own for each GPU, and measures it (see gpu_process).

The first line says what it measures, and each further one what to do next:

    {"device": "cuda", "do": "start"}              opens the device, runs a first kernel; `places`,
                                                   see gpu_device.start
    {"do": "gemm", "dtype": "bf16", …}             answers {"ready": true}, waits for a line
    {"do": "soak", "seconds": 300, …}              the same, see soak.work
    {"do": "memory", "operation": "copy", …}       the same
    {"do": "fill"}                                 all memory that is free
    {"do": "copies", "direction": "h2d", …}
    {"do": "pair", "source": 0, "target": 1, …}    positions among the GPUs that it sees

An answer is {"error": null, …}, or {"error": "what torch says"} alone. After an error the process
ends: nothing works any more on a GPU after most of those that CUDA reports.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from cluster.text import first_line
from validation.payloads import document, gpu_device, gpu_fill, gpu_gemm, gpu_memory, soak

Message = dict[str, Any]


class Worker:
    """One device and what is kept on it between two measurements."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._device: gpu_device.Device | None = None
        self._operands: tuple[tuple[int, int], gpu_gemm.Operands] | None = None
        self._sustained = False

    def do(self, message: Message) -> Message:
        """What the message asks for. Raises whatever torch raises."""
        what = message["do"]
        if what == "count":
            return {"count": gpu_device.count()}
        if what == "start":
            self._device, answer = gpu_device.start(message["device"], message.get("places"))
            return answer
        assert self._device is not None
        if what == "gemm":
            return self._gemm(message, self._device)
        if what == "soak":
            options = {name: value for name, value in message.items() if name != "do"}
            return soak.work(self._device, **options, begin=self._wait)
        # Several GB that a product needed and a copy may need.
        self._operands = None
        self._device.release()
        if what == "fill":
            answer = gpu_fill.whole(self._device)
            self._device.release()
            return answer
        measure = {"memory": self._memory, "copies": self._copies, "pair": self._pair}[what]
        return measure(message, self._device)

    def _gemm(self, message: Message, device: gpu_device.Device) -> Message:
        kind, key = message["dtype"], (message["size"], message["seed"])
        if reason := gpu_gemm.unsupported(kind, device):
            self._wait()
            in_hardware = gpu_gemm.in_hardware(kind, device)
            return {"dtype": kind, "unsupported": reason, "in_hardware": in_hardware}
        if self._operands is None or self._operands[0] != key:
            self._operands = None
            self._operands = key, gpu_gemm.draw(device, *key)
        answer = gpu_gemm.measure(
            kind,
            device,
            self._operands[1],
            seconds=message["seconds"],
            sustain_s=0.0 if self._sustained else message["sustain_s"],
            least=message["least"],
            warmup=message["warmup"],
            repeats=message["repeats"],
            begin=self._wait,
        )
        self._sustained = True  # what follows meets a GPU that is warm
        device.release()
        return {"unsupported": None, "in_hardware": True, **answer}

    def _memory(self, message: Message, device: gpu_device.Device) -> Message:
        return gpu_memory.within(
            message["operation"],
            device,
            message["size"],
            iterations=message["iterations"],
            warmup=message["warmup"],
            begin=self._wait,
        )

    def _copies(self, message: Message, device: gpu_device.Device) -> Message:
        return gpu_memory.with_host(
            message["direction"],
            device,
            message["size"],
            message["seed"],
            iterations=message["iterations"],
            warmup=message["warmup"],
        )

    def _pair(self, message: Message, device: gpu_device.Device) -> Message:
        import torch

        source, target = (
            torch.device("cuda", message[end]) if device.is_gpu else device.torch
            for end in ("source", "target")
        )
        if device.is_gpu:
            torch.cuda.set_device(source)  # events are recorded on its stream
        return gpu_memory.between(
            source,
            target,
            device.watch,
            message["size"],
            message["seed"],
            iterations=message["iterations"],
            warmup=message["warmup"],
        )


def main() -> None:
    """Answers until its input ends, which it does when the payload is gone."""
    stdout = document.claim_stdout()  # libraries print there
    lines = iter(sys.stdin.readline, "")

    def say(answer: Message) -> None:
        text = json.dumps(answer)  # with NaN, if need be: only the payload reads it
        with open(stdout, "w", encoding="utf-8", closefd=False) as stream:
            stream.write(text + "\n")

    def wait() -> None:
        say({"ready": True})
        if not next(lines, ""):
            sys.exit(0)

    serve(Worker(wait), lines, say)


def serve(worker: Worker, lines: Iterator[str], say: Callable[[Message], None]) -> None:
    """Answers every message until there is none, or one could not be done."""
    for line in lines:
        try:
            answer = {**worker.do(json.loads(line)), "error": None}
        except Exception as error:  # whatever it is, it belongs to this GPU
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {first_line(error)}"})
            return
        say(answer)
