"""A sequence's log-probs must not depend on what else stands in its row or its batch.

Axes: R rows, T positions, M tokens that are predicted, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pipeline.compute import prepare
from pipeline.config import TrainerConfig
from pipeline.doctor.agreement import TELLING, TOLERANCE, TOO_EVEN
from pipeline.doctor.finding import Finding, fail, ok, warn
from pipeline.doctor.patient import Patient
from pipeline.packing import lay_out
from pipeline.policy import load_policy, score
from pipeline.ways import packs

Sequences = Sequence[Sequence[int]]
CHUNK = 4096


def logits(patient: Patient) -> Iterator[Finding]:
    """Scores are taken from hidden states and the head: a model that does more to its logits,
    caps or scales them, is scored wrongly."""
    gap = _worst(by_itself(patient.policy, patient.prompts), alone(patient.policy, patient.prompts))
    told = f"{gap:.1e} nats between our scores and the model's own logits"
    if gap <= TOLERANCE:
        yield ok("logits", told, gap)
    else:
        fix = "train another architecture: this one changes its logits after the head"
        yield fail("logits", f"{told}, allowed {TOLERANCE:.0e}", fix, gap)


def packing(patient: Patient) -> Iterator[Finding]:
    """Alone against packed in one row, in the layers of transformers and in those that train."""
    together = patient.prompts
    right_M = by_itself(patient.policy, together)
    across_M = packed(patient.policy, [tuple(chain.from_iterable(together))])
    leak = _worst(across_M[_kept(together)], right_M)
    plain = _worst(packed(patient.policy, together), right_M)
    ready = prepare(load_policy(patient.checkpoint), TrainerConfig())
    kind = ready.config._attn_implementation
    trained = _worst(packed(ready, together), right_M)
    elsewhere = "train another architecture: no setting keeps packed sequences of this one apart"
    kept = "keep trainer.packed_attention true, as it is unless set"
    fix = kept if trained <= TOLERANCE else elsewhere
    yield _packed(patient.policy, _judged("packing, plain", plain, leak, fix))
    unset = "set trainer.packed_attention and trainer.fused to false"
    fix = unset if plain <= TOLERANCE else elsewhere
    yield _packed(ready, _judged(f"packing, {kind}", trained, leak, fix))


def _packed(model: Any, found: Finding) -> Finding:
    """What was found, unless it is right only because nothing was packed."""
    if found.verdict == "fail" or packs(model.base_model):
        return found
    told = "sequences of one row see each other here, so each gets a row of its own"
    return warn(found.name, told, "expect longer steps; another architecture packs", found.number)


def left_padding(patient: Patient) -> Iterator[Finding]:
    """Alone against padded on the left to the longest, under a mask: as generation has it."""
    together = patient.prompts
    right_M = alone(patient.policy, together)
    gap = _worst(padded(patient.policy, together), right_M)
    bare = _worst(padded(patient.policy, together, masked=False), right_M)
    fix = "sample with vLLM, which pads nothing: this architecture ignores its mask"
    yield _judged("left padding", gap, bare, fix)


def _judged(name: str, gap: float, mistake: float, fix: str) -> Finding:
    told = f"{gap:.1e} nats from each sequence alone; seeing the others would show {mistake:.1e}"
    if not gap <= TOLERANCE:
        return fail(name, f"{told}, allowed {TOLERANCE:.0e}", fix, gap)
    if mistake < TELLING * TOLERANCE:
        return warn(name, told, TOO_EVEN, gap)
    return ok(name, told, gap)


@torch.no_grad()
def alone(model: Any, sequences: Sequences) -> Tensor:
    """[M], by a forward pass for each sequence and nothing of ours."""
    found = []
    for sequence in sequences:
        ids = torch.tensor([sequence])
        logp_TV = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        found.append(logp_TV.gather(-1, ids[0, 1:, None]).squeeze(-1))
    return torch.cat(found)


def by_itself(model: Any, sequences: Sequences) -> Tensor:
    """[M], as the trainer scores them, each in a row of its own."""
    return torch.cat([packed(model, [sequence]) for sequence in sequences])


@torch.no_grad()
def packed(model: Any, sequences: Sequences) -> Tensor:
    """[M], all in one row, in the order of the sequences."""
    row = lay_out(sequences, [list(range(len(sequences)))])
    logp_M, _ = score(model, row.ids_RT, row.positions_RT, row.targets_RT, row.sequence_RT >= 0,
                      temperature=1.0, chunk=CHUNK)  # fmt: skip
    return logp_M.cpu()


@torch.no_grad()
def padded(model: Any, sequences: Sequences, *, masked: bool = True) -> Tensor:
    """[M], in a batch; without the mask padding is attended to and counted as positions."""
    longest = max(map(len, sequences))
    ids_RT = torch.zeros(len(sequences), longest, dtype=torch.int64)
    seen_RT = torch.zeros_like(ids_RT)
    for r, sequence in enumerate(sequences):
        ids_RT[r, longest - len(sequence) :] = torch.tensor(sequence)
        seen_RT[r, longest - len(sequence) :] = 1
    if not masked:
        seen_RT = torch.ones_like(seen_RT)
    positions_RT = (seen_RT.cumsum(1) - 1).clamp(min=0)
    logits_RTV = model(
        input_ids=ids_RT, attention_mask=seen_RT, position_ids=positions_RT, use_cache=False
    ).logits
    found = []
    for r, sequence in enumerate(sequences):
        own_TV = logits_RTV[r, longest - len(sequence) : -1].float().log_softmax(-1)
        found.append(own_TV.gather(-1, torch.tensor(sequence[1:])[:, None]).squeeze(-1))
    return torch.cat(found)


def _kept(sequences: Sequences) -> Tensor:
    """Of the tokens that one long sequence predicts, those that no sequence begins with."""
    firsts = [False, *(t == 0 for sequence in sequences for t in range(len(sequence)))][2:]
    return ~torch.tensor(firsts)


def _worst(found_M: Tensor, right_M: Tensor) -> float:
    return (found_M - right_M).abs().max().item()
