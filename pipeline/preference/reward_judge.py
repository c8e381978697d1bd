"""The reward model as a batched judge of general prompts, in the trainer's process.

The paper scores helpfulness on the final summary only and harmlessness on the whole response
(DeepSeek-R1, arXiv 2501.12948v2, section 3.1).
"""

import math
from collections.abc import Sequence
from typing import Any

from veriloop.data.preference_ids import EncodedAnswer, encode
from veriloop.data.preferences import Text
from veriloop.data.problem import GENERAL, Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.types import Rollout
from veriloop.verifiers.answer import after_think, final_answer
from veriloop.verifiers.reward_model import squashed
from veriloop.verifiers.verdict import Verdict

RAW = "raw"  # component of a verdict: the centred, unbounded scalar


class PreferenceJudge:
    """Returns a verdict for each general rollout and None for the others.

    The score is the reward model's scalar, squashed into (0, 1) with `scale`; the component RAW
    is the centred, unbounded scalar. An empty or unclosed response scores 0. Without `scale` the
    raw scalar is what counts: the model then judges such a response as an empty answer, since 0 may
    be more than a bad one gets. If the model fails, or has fewer positions than there are tokens,
    the verdicts are errors.
    """

    def __init__(self, head: ScalarHead, trainer: TrainerConfig, *, scale: float | None) -> None:
        self.head, self.trainer, self.scale = head, trainer, scale

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict | None]:
        verdicts: list[Verdict | None] = [None] * len(rollouts)
        answers: dict[int, EncodedAnswer] = {}
        for i, rollout in enumerate(rollouts):
            if source_of(rollout.problem) != GENERAL:
                continue
            answer = self._encoded(rollout)
            if isinstance(answer, Verdict):
                verdicts[i] = answer
            else:
                answers[i] = answer
        for i, verdict in zip(answers, self._judged(list(answers.values())), strict=True):
            verdicts[i] = verdict
        return verdicts

    def _encoded(self, rollout: Rollout) -> EncodedAnswer | Verdict:
        """The ids that the model scores, or a verdict if there is nothing to score."""
        text = judged_text(rollout.problem, rollout.response)
        if text is not None:
            try:
                return self._ids(rollout.problem.prompt, text)
            except ValueError as mistake:  # the text contains special tokens
                reason = str(mistake)
        else:
            reason = "nothing after the thinking"
        if self.scale is None:
            return self._ids(rollout.problem.prompt, "")
        return Verdict(score=0.0, status="no_answer", detail=reason)

    def _ids(self, prompt: str, text: str) -> EncodedAnswer | Verdict:
        question, answer = to_messages(prompt, text, self.head.tokenizer)
        ids = encode(question, answer, self.head.tokenizer, self.head.ends)
        excess = self.head.beyond_positions(ids)
        return Verdict(score=None, status="error", detail=excess) if excess else ids

    def _judged(self, answers: Sequence[EncodedAnswer]) -> list[Verdict]:
        try:
            values = self.head.rewards(answers, self.trainer)
            return [self._verdict(value) for value in values]
        except Exception as failure:  # noqa: BLE001 - a model failure is an error, not a score
            detail = f"reward model: {type(failure).__name__}: {failure}"
            return [Verdict(score=None, status="error", detail=detail) for _ in answers]

    def _verdict(self, raw: float) -> Verdict:
        if not math.isfinite(raw):
            return Verdict(score=None, status="error", detail=f"the reward model returned {raw}")
        score = squashed(raw, scale=1.0 if self.scale is None else self.scale)
        return Verdict(score=score, components={RAW: raw, "squashed": score})


def judged_text(problem: Problem, response: str) -> str | None:
    """The text to score: the whole response to a harmful request, else the summary.

    The summary is the content of the answer tags, or without tags the text after the thinking;
    None if it is empty or unclosed.
    """
    summary = after_think(response, prefilled_think=problem.facts.get("prefilled_think", False))
    if summary is not None and ("<answer>" in summary or "</answer>" in summary):
        summary = final_answer(response)  # whose thinking has ended
    if summary is None or not any(map(str.isalnum, summary)):
        return None
    return response if problem.facts.get("kind") == "harm" else summary.strip()


def response_of(rollout: Rollout) -> str:
    """The response as sampled."""
    return rollout.response


def summary_of(rollout: Rollout) -> str:
    """What `judged_text` returns, or "" if there is nothing to score."""
    return judged_text(rollout.problem, rollout.response) or ""


def summary_ids(head: ScalarHead, rollout: Rollout) -> EncodedAnswer:
    """The ids of question and `summary_of`, as PreferenceJudge scores them. A summary that cannot
    be encoded, because it contains special tokens, counts as an empty one."""
    prompt = rollout.problem.prompt
    try:
        messages = to_messages(prompt, summary_of(rollout), head.tokenizer)
        return encode(*messages, head.tokenizer, head.ends)
    except ValueError:
        return encode(*to_messages(prompt, "", head.tokenizer), head.tokenizer, head.ends)


def to_messages(prompt: str, text: str, tokenizer: Any) -> tuple[Text, Text]:
    """Prompt and answer as messages if the tokenizer has a chat template, else as plain text."""
    if not tokenizer.chat_template:
        return prompt, text
    return ({"role": "user", "content": prompt},), ({"role": "assistant", "content": text},)
