"""Checks of a bfloat16 pass: dtypes of norms and softmaxes, and log-probs against the sampler."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from veriloop.pipeline.config.sections import SamplerConfig, TrainerConfig
from veriloop.pipeline.doctor.batch_invariance import CHUNK, score_packed
from veriloop.pipeline.doctor.checkpoint_under_test import MAX_TOKENS, CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.packing import lay_out, response_mask
from veriloop.pipeline.model.policy import load_policy, score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.sampling.sampler import Completion, Sampler, Sampling
from veriloop.pipeline.sampling.sync import batch_tolerance

TRAINER = TrainerConfig(compute="bfloat16")
EXACT = ("rsqrt", "rsqrt_", "_softmax", "_log_softmax", "logsumexp", "exp", "exp_", "log", "log_")
HALF = (torch.bfloat16, torch.float16)


def norm_and_softmax(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Record the operations of a bfloat16 pass: norm and softmax statistics must be float32."""
    name = "norm and softmax"
    stored = checkpoint.config.get_text_config().dtype
    try:
        model = prepare(load_policy(checkpoint.folder), TRAINER)
    except RecipeError as refusal:
        yield skipped(name, str(refusal), "set trainer.compute: float32, the default")
        return
    # On a GPU blocks are compiled, and compiled functions raise an error under a log.
    with torch.compiler.set_stance("force_eager"), _OperationLog() as log:
        score_packed(model, checkpoint.prompts)
    rounded = sorted({kind for kind, dtype in log.operations if dtype in HALF})
    measured = f"stored as {str(stored).removeprefix('torch.')}; in a bfloat16 pass "
    if not log.operations:
        yield skipped(name, "the model has neither", "nothing to do")
    elif rounded:
        fix = "set trainer.compute: float32, or trainer.fused: true on a CPU"
        yield fail(name, f"{measured}{', '.join(rounded)} run in bfloat16", fix, len(rounded))
    else:
        kinds = ", ".join(sorted({kind.rstrip("_") for kind, _ in log.operations}))
        yield ok(name, f"{measured}{kinds} stay in float32", 0)


class _OperationLog(TorchDispatchMode):
    """Records which of `EXACT` ran on which input dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kind = func.overloadpacket.__name__
        if kind in EXACT:
            inputs = [x for x in args if isinstance(x, Tensor) and x.is_floating_point()]
            self.operations |= {(kind, x.dtype) for x in inputs}
        return func(*args, **(kwargs or {}))


def in_bfloat16(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Sampler against trainer in bfloat16; of the samplers only vLLM supports it."""
    name = "log-probs, bfloat16"
    if checkpoint.dtype == "float32":
        yield skipped(name, "not requested", "pass --dtype bfloat16 to compare in bfloat16 as well")
        return
    model = prepare(load_policy(checkpoint.folder), TRAINER)
    half = checkpoint.sampler.name == "vllm"
    if half:
        checkpoint.close_sampler()
    sampler = checkpoint.open_sampler("bfloat16") if half else checkpoint.sampler
    try:
        gap_M = _gaps(model, sampler, checkpoint.prompts)
    finally:
        if half:
            sampler.close()
    mean, allowed = gap_M.mean().item(), batch_tolerance(TRAINER, SamplerConfig(), [], 0)
    assert allowed is not None, "a tolerance exists unless an earlier policy sampled"
    measured = f"{len(gap_M)} tokens differ by {mean:.1e} nats on average, "
    measured += f"{gap_M.max():.1e} at most ({sampler.name} in {'bfloat16' if half else 'float32'})"
    if mean <= allowed:
        yield ok(name, measured, mean)
    else:
        fix = "set trainer.compute and sampler.dtype to float32"
        yield fail(name, f"{measured}, allowed {allowed}", fix, mean)


@torch.no_grad()
def _gaps(model: Any, sampler: Sampler, prompts: Sequence[Sequence[int]]) -> Tensor:
    """|trainer's log-prob - sampler's log-prob| of each sampled token, float32 [M]."""
    sampling = Sampling(per_prompt=1, temperature=1.0, max_tokens=MAX_TOKENS, seed=0)
    completions: list[Completion] = [group[0] for group in sampler.sample(prompts, sampling)]
    sequences = [(*p, *c.ids) for p, c in zip(prompts, completions, strict=True)]
    row = lay_out(sequences, [list(range(len(sequences)))])
    mask_RT = response_mask(row, [len(p) for p in prompts])
    trained_M, _ = score(model, row.ids_RT, row.positions_RT, row.targets_RT, mask_RT,
                         temperature=1.0, chunk=CHUNK)  # fmt: skip
    sampled_M = torch.tensor([logp for c in completions for logp in c.logp])
    return (trained_M.cpu() - sampled_M).abs()
