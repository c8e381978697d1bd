"""In which type norms and softmaxes are computed when the rest runs in bfloat16."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.compute import batch_tolerance, prepare
from pipeline.config import SamplerConfig, TrainerConfig
from pipeline.doctor.finding import Finding, absent, fail, ok
from pipeline.doctor.neighbours import CHUNK, packed
from pipeline.doctor.patient import MAX_TOKENS, Patient
from pipeline.failures import RecipeError
from pipeline.packing import lay_out, response_mask
from pipeline.policy import load_policy, score
from pipeline.sampling.sampler import Completion, Sampler, Sampling

TRAINER = TrainerConfig(compute="bfloat16")
EXACT = ("rsqrt", "rsqrt_", "_softmax", "_log_softmax", "logsumexp", "exp", "exp_", "log", "log_")
SMALL = (torch.bfloat16, torch.float16)


def norm_and_softmax(patient: Patient) -> Iterator[Finding]:
    """Watches every operation of a bfloat16 pass: statistics must not be rounded on the way."""
    name = "norm and softmax"
    stored = patient.config.get_text_config().dtype
    try:
        model = prepare(load_policy(patient.checkpoint), TRAINER)
    except RecipeError as refusal:
        yield absent(name, str(refusal), "set trainer.compute: float32, the default")
        return
    with _Watch() as watch:
        packed(model, patient.prompts)
    rounded = sorted({kind for kind, dtype in watch.seen if dtype in SMALL})
    told = f"stored as {str(stored).removeprefix('torch.')}; in a bfloat16 pass "
    if not watch.seen:
        yield absent(name, "the model has neither", "nothing to do: it has nothing to round")
    elif rounded:
        fix = "set trainer.compute: float32, or trainer.fused: true on a CPU"
        yield fail(name, f"{told}{', '.join(rounded)} run in it", fix, len(rounded))
    else:
        yield ok(name, f"{told}{_kinds(watch)} stay in float32", 0)


def _kinds(watch: "_Watch") -> str:
    return ", ".join(sorted({kind.rstrip("_") for kind, _ in watch.seen}))


class _Watch(TorchDispatchMode):
    """Takes down which of `EXACT` ran, and on what type."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kind = func.overloadpacket.__name__
        if kind in EXACT:
            given = [x.dtype for x in args if isinstance(x, Tensor) and x.is_floating_point()]
            self.seen |= {(kind, dtype) for dtype in given}
        return func(*args, **(kwargs or {}))


def in_bfloat16(patient: Patient) -> Iterator[Finding]:
    """Sampler against trainer where the trainer, and vLLM if it samples, compute in bfloat16."""
    name = "log-probs, bfloat16"
    if patient.dtype == "float32":
        yield absent(name, "not asked for", "--dtype bfloat16, to compare in it as well")
        return
    model = prepare(load_policy(patient.checkpoint), TRAINER)
    half = patient.sampler.name == "vllm"  # the torch sampler knows float32 only
    if half:
        patient.close_sampler()
    sampler = patient.open_sampler("bfloat16") if half else patient.sampler
    try:
        gap_M = _gaps(model, sampler, patient.prompts)
    finally:
        if half:
            sampler.close()
    mean, allowed = gap_M.mean().item(), batch_tolerance(TRAINER, SamplerConfig(), [], 0)
    assert allowed is not None, "nothing was sampled by an earlier policy"
    told = f"{len(gap_M)} tokens differ by {mean:.1e} nats on average, {gap_M.max():.1e} at most"
    told += f" ({sampler.name} in {'bfloat16' if half else 'float32'})"
    if mean <= allowed:
        yield ok(name, told, mean)
    else:
        fix = "set trainer.compute and sampler.dtype to float32"
        yield fail(name, f"{told}, allowed {allowed}", fix, mean)


@torch.no_grad()
def _gaps(model: Any, sampler: Sampler, prompts: Sequence[Sequence[int]]) -> Tensor:
    """|log-prob of the trainer - of the sampler| of each sampled token, float32 [M]."""
    asked = Sampling(per_prompt=1, temperature=1.0, max_tokens=MAX_TOKENS, seed=0)
    written: list[Completion] = [group[0] for group in sampler.sample(prompts, asked)]
    sequences = [(*p, *c.ids) for p, c in zip(prompts, written, strict=True)]
    row = lay_out(sequences, [list(range(len(sequences)))])
    mask_RT = response_mask(row, [len(p) for p in prompts])
    trained_M, _ = score(model, row.ids_RT, row.positions_RT, row.targets_RT, mask_RT,
                         temperature=1.0, chunk=CHUNK)  # fmt: skip
    sampled_M = torch.tensor([logp for c in written for logp in c.logp])
    return (trained_M.cpu() - sampled_M).abs()
