"""Checks that a sequence's log-probs do not depend on its row or batch.

Axes: R rows, T positions, M predicted tokens, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, warn
from veriloop.pipeline.doctor.sampler_agreement import TOLERANCE, within_tolerance
from veriloop.pipeline.model.packing import lay_out
from veriloop.pipeline.model.policy import load_policy, score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import supports_packing

Sequences = Sequence[Sequence[int]]
CHUNK = 4096


def logits(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Log-probs are computed from hidden states and the head, which is wrong for a model that caps
    or scales its logits."""
    policy, prompts = checkpoint.policy, checkpoint.prompts
    gap = _largest_gap(score_separately(policy, prompts), forward_separately(policy, prompts))
    measured = f"{gap:.1e} nats between the trainer's scores and the model's own logits"
    if gap <= TOLERANCE:
        yield ok("logits", measured, gap)
    else:
        fix = "train another architecture: this one changes its logits after the head"
        yield fail("logits", f"{measured}, allowed {TOLERANCE:.0e}", fix, gap)


def packing(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Each sequence alone against packed in one row, with the layers of transformers and with the
    trainer's layers."""
    policy, prompts = checkpoint.policy, checkpoint.prompts
    expected_M = score_separately(policy, prompts)
    joined_M = score_packed(policy, [tuple(chain.from_iterable(prompts))])
    leak = _largest_gap(joined_M[_predicted_within(prompts)], expected_M)
    plain = _largest_gap(score_packed(policy, prompts), expected_M)
    prepared = prepare(load_policy(checkpoint.folder), TrainerConfig())
    kind = prepared.config._attn_implementation
    trained = _largest_gap(score_packed(prepared, prompts), expected_M)
    unfixable = "train another architecture: no setting separates packed sequences of this one"
    default = "keep the default trainer.packed_attention: true"
    fix = default if trained <= TOLERANCE else unfixable
    yield _unless_unpacked(policy, _compare("packing, plain", plain, leak, fix))
    disabled = "set trainer.packed_attention and trainer.fused to false"
    fix = disabled if plain <= TOLERANCE else unfixable
    yield _unless_unpacked(prepared, _compare(f"packing, {kind}", trained, leak, fix))


def _unless_unpacked(model: Any, finding: Finding) -> Finding:
    """The finding, or a warning if it is ok only because nothing was packed."""
    if finding.verdict == "fail" or supports_packing(model.base_model):
        return finding
    measured = "packed sequences would attend to each other, so each one gets its own row"
    fix = "expect longer steps, or choose an architecture that supports packing"
    return warn(finding.name, measured, fix, finding.number)


def left_padding(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Each sequence alone against padded on the left with a mask, as in batched generation."""
    policy, prompts = checkpoint.policy, checkpoint.prompts
    expected_M = forward_separately(policy, prompts)
    gap = _largest_gap(forward_padded(policy, prompts), expected_M)
    unmasked = _largest_gap(forward_padded(policy, prompts, masked=False), expected_M)
    fix = "sample with vLLM, which does not pad: this architecture ignores its mask"
    yield _compare("left padding", gap, unmasked, fix)


def _compare(name: str, gap: float, leak: float, fix: str) -> Finding:
    measured = f"{gap:.1e} nats from each sequence alone; a leak would show {leak:.1e}"
    return within_tolerance(name, measured, gap, leak, fix)


@torch.no_grad()
def forward_separately(model: Any, sequences: Sequences) -> Tensor:
    """Log-probs [M] from one plain forward pass per sequence, without the trainer's code."""
    logp = []
    for sequence in sequences:
        ids = torch.tensor([sequence])
        logp_TV = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        logp.append(logp_TV.gather(-1, ids[0, 1:, None]).squeeze(-1))
    return torch.cat(logp)


def score_separately(model: Any, sequences: Sequences) -> Tensor:
    """Log-probs [M] as the trainer scores them, one row per sequence."""
    return torch.cat([score_packed(model, [sequence]) for sequence in sequences])


@torch.no_grad()
def score_packed(model: Any, sequences: Sequences) -> Tensor:
    """Log-probs [M] as the trainer scores them, all sequences packed in one row."""
    row = lay_out(sequences, [list(range(len(sequences)))])
    logp_M, _ = score(model, row.ids_RT, row.positions_RT, row.targets_RT, row.sequence_RT >= 0,
                      temperature=1.0, chunk=CHUNK)  # fmt: skip
    return logp_M.cpu()


@torch.no_grad()
def forward_padded(model: Any, sequences: Sequences, *, masked: bool = True) -> Tensor:
    """Log-probs [M] in a left-padded batch. Without the mask, padding is attended to and shifts
    the positions."""
    longest = max(map(len, sequences))
    ids_RT = torch.zeros(len(sequences), longest, dtype=torch.int64)
    mask_RT = torch.zeros_like(ids_RT)
    for r, sequence in enumerate(sequences):
        ids_RT[r, longest - len(sequence) :] = torch.tensor(sequence)
        mask_RT[r, longest - len(sequence) :] = 1
    if not masked:
        mask_RT = torch.ones_like(mask_RT)
    positions_RT = (mask_RT.cumsum(1) - 1).clamp(min=0)
    logits_RTV = model(
        input_ids=ids_RT, attention_mask=mask_RT, position_ids=positions_RT, use_cache=False
    ).logits
    logp = []
    for r, sequence in enumerate(sequences):
        logp_TV = logits_RTV[r, longest - len(sequence) : -1].float().log_softmax(-1)
        logp.append(logp_TV.gather(-1, torch.tensor(sequence[1:])[:, None]).squeeze(-1))
    return torch.cat(logp)


def _predicted_within(sequences: Sequences) -> Tensor:
    """Mask over the tokens predicted in the joined sequence: False for first tokens."""
    firsts = [False, *(t == 0 for sequence in sequences for t in range(len(sequence)))][2:]
    return ~torch.tensor(firsts)


def _largest_gap(logp_M: Tensor, expected_M: Tensor) -> float:
    return (logp_M - expected_M).abs().max().item()
