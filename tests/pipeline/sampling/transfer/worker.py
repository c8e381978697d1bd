"""A worker that receives weights as it is told."""

import os
import signal
from contextlib import suppress

import torch

from veriloop.pipeline.sampling.sampler import digests
from veriloop.pipeline.sampling.transfer import groups
from veriloop.pipeline.sampling.transfer.receiver import Receiver


def work(connection, rank, mischief, largest=groups.LARGEST):
    """Take invitations, and answer with names, types, shapes and digests of what came. `largest`:
    workers of one process group."""
    torch.set_num_threads(1)
    groups.LARGEST = largest
    receiver = None
    with suppress(EOFError):
        while True:
            invitation = connection.recv()
            try:
                if receiver is None or receiver.group_id != invitation.group:
                    receiver = Receiver(invitation, rank, torch.device("cpu"))
                weights = _received(receiver, invitation.sync, mischief)
                receiver.confirm(invitation.sync)
                shapes = [(name, w.dtype, tuple(w.shape)) for name, w in weights]
                connection.send((shapes, digests(weights)))
            except (RuntimeError, ValueError) as failure:
                if receiver is not None:
                    receiver.close()
                receiver = None
                connection.send(("failed", str(failure)))


def _received(receiver, sync, mischief):
    weights = []
    for name, weight in receiver.weights(sync):
        weights.append((name, weight))
        if mischief == f"dies at {name}":
            os.kill(os.getpid(), signal.SIGKILL)
        if mischief == f"stops at {name}":
            os.kill(os.getpid(), signal.SIGSTOP)
    return weights
