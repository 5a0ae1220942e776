"""Inference on several GPUs: tensor parallel, a batch of prompts, and a cache of keys and values.

Each layer is cut over the GPUs as in tensor_parallel.py, so a model that is too large for one GPU
answers, too. The cache saves that each new word works on all words before it again.
"""

from __future__ import annotations

import copy
import time

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional

from group import joined
from tensor_parallel import CUT
from transformer import LENGTH, Block, Transformer, batch, loss_of

PROMPTS, WORDS_OF_PROMPT = 16, 4

Cache = tuple[Tensor, Tensor] | None  # keys and values of the words before


def through(block: Block, x: Tensor, before: Cache) -> tuple[Tensor, Cache]:
    """What a block makes of new words, and the keys and values of all words so far."""
    y = block.before(x)
    query, key, value = (
        layer(y).unflatten(-1, (block.heads, -1)).transpose(1, 2)
        for layer in (block.query, block.key, block.value)
    )
    if before is not None:
        key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
    # Words of the prompt come together and see those before them; a single new word sees all.
    attended = functional.scaled_dot_product_attention(query, key, value, is_causal=before is None)
    x = x + block.out(attended.transpose(1, 2).flatten(2))
    return x + block.down(functional.gelu(block.up(block.between(x)))), (key, value)


@torch.no_grad()
def answer(model: Transformer, prompts: Tensor) -> Tensor:
    """The most likely words after each prompt, until the model's length is reached."""
    words, new = prompts, prompts
    caches: list[Cache] = [None] * len(model.blocks)
    while words.shape[1] < LENGTH:
        x = model.word(new) + model.place[words.shape[1] - new.shape[1] : words.shape[1]]
        for number, block in enumerate(model.blocks):
            x, caches[number] = through(block, x, caches[number])
        new = model.head(x[:, -1]).argmax(-1, keepdim=True)
        words = torch.cat([words, new], 1)
    return words[:, prompts.shape[1] :]


def learned(device: torch.device) -> Transformer:
    """A model that knows which word follows which; yours would be loaded from a checkpoint."""
    torch.manual_seed(0)
    model = Transformer(layers=2).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(60):
        words, following = (tensor.to(device) for tensor in batch(16, step))
        optimiser.zero_grad()
        loss_of(model(words), following).backward()
        optimiser.step()
    return model


def main() -> None:
    with joined() as group:
        alone = learned(group.device)
        for parameter in alone.parameters():
            dist.broadcast(parameter.data, 0)  # the same on all, to the last bit
        model = copy.deepcopy(alone)
        mesh = init_device_mesh(group.device.type, (group.size,))
        for block in model.blocks:
            parallelize_module(block, mesh, CUT)
            block.heads //= group.size

        words, following = (tensor.to(group.device) for tensor in batch(PROMPTS, step=10_000))
        prompts = words[:, :WORDS_OF_PROMPT]
        one = answer(alone, prompts)
        answer(model, prompts)  # once before it is timed
        for gpus, asked, many in (
            *((1, alone, many) for many in (1, PROMPTS)),
            *((group.size, model, many) for many in (1, PROMPTS)),
        ):
            begin = time.perf_counter()
            answers = answer(asked, prompts[:many])
            speed = answers.numel() / (time.perf_counter() - begin)
            group.say(f"{gpus} processes, {many} prompts at a time: {speed:.0f} tokens/s")
            # Proof: one GPU with the whole model gives the same answer.
            assert answers.equal(one[:many]), "the answer differs from that of one GPU"
        right = (answers == following[:, WORDS_OF_PROMPT - 1 : -1]).float().mean().item()
        assert right > 0.5, f"only {right:.0%} of the words are those that follow"
        group.say(f"the answers equal those of one GPU; {right:.0%} of their words are right")


if __name__ == "__main__":
    main()
