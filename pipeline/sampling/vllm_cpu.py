"""Faster parts for vLLM's engine on a CPU, in the processes of a run; servers keep vLLM's own.

RMS norms run in vLLM's kernels, which it selects on GPUs alone. A token is drawn by one uniform
number instead of one for each token of the vocabulary, and the ranks of tokens are not computed.
"""

from typing import Any

import torch
from torch import Tensor

PROVIDER = "cpu_kernels"  # of vLLM's intermediate representation
STEP_TOKENS = 16_384  # of prompts and responses in one step: prompts are not cut into chunks
CACHE_BLOCK = 32  # tokens, the fewest there can be: answers to one prompt share its whole blocks
BLOCK = 256  # tokens of the vocabulary whose probabilities are added up first


def norm_settings() -> dict[str, Any]:
    """Arguments of vLLM's engine with which its norms run in its kernels."""
    from vllm import ir
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if PROVIDER not in ir.ops.rms_norm.impls:
        _offer_norms(ir.ops, torch.ops._C)
    return {"ir_op_priority": {name: [PROVIDER] for name in ("rms_norm", "fused_add_rms_norm")}}


def _offer_norms(ops: Any, kernels: Any) -> None:
    @ops.rms_norm.register_impl(PROVIDER, supports_args=_plain_norm)
    def rms_norm(
        x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
    ) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype)
        kernels.rms_norm(out, x.contiguous(), weight, epsilon)
        return out

    @ops.fused_add_rms_norm.register_impl(PROVIDER, supports_args=_plain_sum, inplace=True)
    def fused_add_rms_norm(
        x: Tensor,
        x_residual: Tensor,
        weight: Tensor | None,
        epsilon: float,
        variance_size: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        kernels.fused_add_rms_norm(x, x_residual, weight, epsilon)
        return x, x_residual


def _plain_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    """Whether the kernel computes this norm."""
    return variance_size is None and weight is not None and weight.dtype == x.dtype


def _plain_sum(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    """Whether the kernel computes this norm of a sum, which it writes over both."""
    plain = _plain_norm(x, weight, epsilon, variance_size)
    return plain and x.is_contiguous() and x_residual.is_contiguous()


def draw_by_uniforms(worker: Any) -> None:
    """Replace how vLLM's sampler draws a token and gathers its log-prob; runs in the worker."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    sampler, draw = worker.model_runner.sampler, Draw()
    with_ranks = sampler.gather_logprobs

    def forward(
        logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        left = apply_top_k_top_p(logits, k, p)
        return draw(left, uniforms(len(left), generators)), left

    def gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> Any:
        if num_logprobs:
            return with_ranks(logprobs, num_logprobs, token_ids)
        return _of_sampled(logprobs, token_ids)

    if sampler.logprobs_mode != "processed_logprobs":
        raise ValueError(f"logprobs_mode={sampler.logprobs_mode!r}, not 'processed_logprobs'")
    sampler.topk_topp_sampler.forward = forward
    sampler.gather_logprobs = gather_logprobs


def uniforms(rows: int, generators: dict[int, torch.Generator]) -> Tensor:
    """A number in [0, 1) for each row, float64: by its own generator, or by torch's."""
    if len(generators) < rows:
        numbers = torch.rand(rows, dtype=torch.float64)
    else:
        numbers = torch.empty(rows, dtype=torch.float64)
    for row, generator in generators.items():
        numbers[row : row + 1].uniform_(generator=generator)
    return numbers


class Draw:
    """Draws a token of each row of logits, and makes them log-probs in place."""

    def __init__(self) -> None:
        # kept for probabilities: new memory would take as long as they do
        self._kept, self._vocabulary = torch.empty(0), 0

    def __call__(self, logits_BV: Tensor, uniforms_B: Tensor) -> Tensor:
        """The token of each row at which its cumulative probability exceeds its uniform number,
        int64[B].

        Probabilities and their sums over a block are float32, sums of those float64; a token of
        probability 0 is not drawn. A row with NaN or +inf has log-probs of NaN, and any token.
        """
        probs_BNM = self._probs(logits_BV)
        upto_BN = probs_BNM.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)
        logits_BV.sub_(upto_BN[:, -1:].log().to(logits_BV.dtype))
        target_B = _below(uniforms_B * upto_BN[:, -1], upto_BN)
        block_B = _first_above(upto_BN, target_B)
        row_B = torch.arange(len(logits_BV))
        before_B = torch.where(block_B > 0, upto_BN[row_B, block_B - 1], 0.0)
        upto_BM = probs_BNM[row_B, block_B].cumsum(dim=-1, dtype=torch.float64)
        place_B = _first_above(upto_BM, _below(target_B - before_B, upto_BM))
        return (block_B * BLOCK + place_B).clamp_(max=logits_BV.shape[-1] - 1)

    def _probs(self, logits_BV: Tensor) -> Tensor:
        """[B, N, M]: probabilities times a constant of the row, in N blocks of M tokens; the last
        block ends in zeros. The logits of a row become those whose largest is 0."""
        rows, vocabulary = logits_BV.shape
        width = -(-vocabulary // BLOCK) * BLOCK
        if self._vocabulary != vocabulary or len(self._kept) < rows:
            self._kept, self._vocabulary = logits_BV.new_zeros(rows, width), vocabulary
        probs_BW = self._kept[:rows]
        logits_BV.sub_(logits_BV.amax(dim=-1, keepdim=True))
        torch.exp(logits_BV, out=probs_BW[:, :vocabulary])
        return probs_BW.view(rows, -1, BLOCK)


def _below(target_B: Tensor, upto_BN: Tensor) -> Tensor:
    """At most the number before the last sum, which rounding can reach."""
    return torch.minimum(target_B, upto_BN[:, -1].nextafter(target_B.new_zeros(())))


def _first_above(upto_BN: Tensor, target_B: Tensor) -> Tensor:
    """The place of the first sum above; the last one where there is none, as among NaN."""
    places_B1 = torch.searchsorted(upto_BN, target_B.unsqueeze(-1), right=True)
    return places_B1.squeeze(-1).clamp_(max=upto_BN.shape[-1] - 1)


def _of_sampled(logprobs_BV: Tensor, token_ids_B: Tensor) -> Any:
    """The log-probs of the sampled tokens alone, in vLLM's form; ranks are 0."""
    from vllm.v1.outputs import LogprobsTensors

    ids_B1 = token_ids_B.unsqueeze(-1)
    return LogprobsTensors(
        ids_B1.to(torch.int32), logprobs_BV.gather(-1, ids_B1), torch.zeros_like(token_ids_B)
    )
