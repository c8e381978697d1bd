"""The sections of `benchmarks/gpu.py` on ranks and servers: an update divided by FSDP2 with one
rank beside a plain one, and weights that another process of the same GPU opens (`ipc`)."""

import multiprocessing
import os
import statistics
from contextlib import closing
from multiprocessing.connection import Connection
from threading import Event
from typing import Any

import torch
from gpu_sections import GIB, PROMPT, SHAPES, model_of, timed, trainer_of
from grpo_steps import answers, stepper
from publish import table

from veriloop.pipeline.cluster.rank_group import join, leave
from veriloop.pipeline.model.prepare import DTYPES
from veriloop.pipeline.sampling.sampler import digests
from veriloop.pipeline.sampling.transfer.receiver import Receiver
from veriloop.pipeline.sampling.transfer.sender import Sender

SLOWER = 1.05  # times the plain update, at most
SAME = {"float32": 1e-6, "bfloat16": 1e-2}  # relative difference of the norms of the gradients
SEND_S = 1.0
DEADLINE_S = 120.0
SERVER = "http://127.0.0.1:9"  # a name: no server is asked
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
         "MASTER_PORT": "0"}  # fmt: skip


def sharded(name: str, device: str, *, length: int, count: int, repeats: int) -> dict[str, Any]:
    """Seconds of updates on `count` sequences of `length` tokens, plain and divided by FSDP2 with
    one rank, in turn; and the norms of the first gradients."""
    prompt = min(PROMPT, length // 2)
    graded = answers(count, prompt, length - prompt, SHAPES[name]["vocab_size"])
    trainer = trainer_of(device, length)
    plain = stepper(model_of(name, device), graded, trainer)
    os.environ.update(ALONE)
    ranks = join(device, DEADLINE_S)
    try:
        divided = stepper(model_of(name, device), graded, trainer, ranks)
        norms = [step().grad_norm for step in (plain, divided)]
        seconds = [[timed(step, device) for step in (plain, divided)] for _ in range(repeats)]
    finally:
        leave()
    medians = [statistics.median(column) for column in zip(*seconds, strict=True)]
    return {
        "model": name,
        "dtype": trainer.compute,
        "plain_s": medians[0],
        "fsdp_s": medians[1],
        "slower": statistics.median(divided_s / plain_s for plain_s, divided_s in seconds),
        "plain_norm": norms[0],
        "fsdp_norm": norms[1],
    }


def sent(name: str, device: str, *, repeats: int) -> dict[str, Any]:
    """Seconds until another process has all weights in its own memory, and whether its digests are
    equal. The first time includes opening the memory."""
    dtype = "bfloat16" if device != "cpu" else "float32"
    model = model_of(name, device).to(DTYPES[dtype]).requires_grad_(False)
    weights = list(model.named_parameters())
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=_receive, args=(there, device), daemon=True)
    worker.start()
    there.close()
    here.recv()  # it has started
    seconds, agree = [], []
    with closing(Sender("ipc", DEADLINE_S)) as sender:
        for number in range(repeats + 1):
            torch._foreach_add_([weight for _, weight in weights], 0.5 * number)
            here.send(sender.invite({SERVER: 1})[SERVER])
            seconds.append(timed(lambda: sender.send(weights, Event()), device))
            agree.append(here.recv() == digests(weights))
    here.close()
    worker.join()
    return {
        "model": name,
        "dtype": dtype,
        "gib": sum(weight.nbytes for _, weight in weights) / GIB,
        "first_s": seconds[0],
        "send_s": statistics.median(seconds[1:]),
        "digests_agree": all(agree),
    }


def _receive(connection: Connection, device: str) -> None:
    """The other process: takes invitations and returns the digests of what it keeps."""
    receiver: Receiver | None = None
    own: dict[str, torch.Tensor] = {}
    torch.empty(1, device=device)  # opens the GPU
    connection.send("started")
    while True:
        try:
            invitation = connection.recv()
        except EOFError:
            return
        receiver = receiver or Receiver(invitation, 0, torch.device(device))
        for name, weight in receiver.weights(invitation.sync):
            own.setdefault(name, torch.empty_like(weight)).copy_(weight)
        receiver.confirm(invitation.sync)
        connection.send(digests(own.items()))


def shortfalls(results: dict[str, Any]) -> list[str]:
    """What these sections aim at and miss."""
    failed = []
    if "slower" in (row := results.get("sharded", {})):
        if row["slower"] > SLOWER:
            failed.append(f"FSDP2 of one rank: {row['slower']:.3f} times the time of a plain "
                          f"update, at most {SLOWER}")  # fmt: skip
        off = abs(row["fsdp_norm"] / row["plain_norm"] - 1)
        if not off <= SAME[row["dtype"]]:
            failed.append(f"FSDP2 of one rank: the gradient's norm is off by {off:.1e}")
    if "send_s" in (row := results.get("ipc", {})):
        if row["send_s"] > SEND_S:
            failed.append(f"ipc: {row['gib']:.1f} GiB in {row['send_s']:.2f} s, aim {SEND_S}")
        if not row["digests_agree"]:
            failed.append("ipc: the other process has other weights than were sent")
    return failed


def shown(results: dict[str, Any]) -> str:
    """A table for each section."""
    texts = []
    for section, title, names in (
        ("sharded", "update", ("plain_s", "fsdp_s", "slower", "plain_norm", "fsdp_norm")),
        ("ipc", "weights by ipc", ("gib", "first_s", "send_s")),
    ):
        row = results.get(section, {})
        if names[0] in row:
            texts.append(table(
                [title, "dtype", *names], [[row["model"], row["dtype"], *(row[n] for n in names)]]
            ))  # fmt: skip
    return "\n\n".join(texts)
