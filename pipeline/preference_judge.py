"""The reward model as a judge of general prompts, in the trainer's process and in batches.

The paper reads helpfulness off the final summary alone, so that thinking is not judged, and
harmlessness off the whole response (DeepSeek-R1, section 2.3.4).
"""

import math
from collections.abc import Sequence
from typing import Any

from data.preference_ids import Ids, encode
from data.preferences import Text
from data.problem import GENERAL, Problem, source_of
from pipeline.config import TrainerConfig
from pipeline.preference.scalar_head import ScalarHead
from pipeline.records import Rollout
from verifiers.answer import after_think, final_answer
from verifiers.reward_model import squashed
from verifiers.verdict import Verdict


class PreferenceJudge:
    """A verdict for each general rollout, None for the others.

    The score is the reward model's scalar, squashed into (0, 1) with `scale`; the component `raw`
    is the scalar, centred and unbounded. An empty or unclosed response scores 0. Where the model
    itself fails, the verdicts are errors.
    """

    def __init__(self, head: ScalarHead, trainer: TrainerConfig, *, scale: float) -> None:
        self.head, self.trainer, self.scale = head, trainer, scale

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict | None]:
        found: list[Verdict | None] = [None] * len(rollouts)
        asked: dict[int, Ids] = {}
        for i, rollout in enumerate(rollouts):
            if source_of(rollout.problem) != GENERAL:
                continue
            answer = self._encoded(rollout)
            if isinstance(answer, Verdict):
                found[i] = answer
            else:
                asked[i] = answer
        for i, verdict in zip(asked, self._judged(list(asked.values())), strict=True):
            found[i] = verdict
        return found

    def _encoded(self, rollout: Rollout) -> Ids | Verdict:
        """What the model reads of a rollout; a verdict where there is nothing for it to read."""
        text = judged_text(rollout.problem, rollout.response)
        if text is None:
            return Verdict(score=0.0, status="no_answer", detail="nothing after the thinking")
        prompt, answer = laid_out(rollout.problem.prompt, text, self.head.tokenizer)
        try:
            return encode(prompt, answer, self.head.tokenizer, self.head.ends)
        except ValueError as mistake:  # the policy wrote the model's own marks into its text
            return Verdict(score=0.0, status="no_answer", detail=str(mistake))

    def _judged(self, answers: Sequence[Ids]) -> list[Verdict]:
        try:
            values = self.head.rewards(answers, self.trainer)
            return [self._verdict(value) for value in values]
        except Exception as failure:  # noqa: BLE001 - the model is ours: its failure is no score
            detail = f"reward model: {type(failure).__name__}: {failure}"
            return [Verdict(score=None, status="error", detail=detail) for _ in answers]

    def _verdict(self, raw: float) -> Verdict:
        if not math.isfinite(raw):
            return Verdict(score=None, status="error", detail=f"the reward model said {raw}")
        score = squashed(raw, scale=self.scale)
        return Verdict(score=score, components={"raw": raw, "squashed": score})


def judged_text(problem: Problem, response: str) -> str | None:
    """The whole response to a harmful request, else the summary: what stands in the answer tags,
    or after the thinking where there are none. None where the summary is empty or unclosed."""
    prefilled = problem.facts.get("prefilled_think", False)
    summary = after_think(response, prefilled_think=prefilled)
    if summary is not None and ("<answer>" in summary or "</answer>" in summary):
        summary = final_answer(response, prefilled_think=prefilled)
    if summary is None or not any(map(str.isalnum, summary)):
        return None
    return response if problem.facts.get("kind") == "harm" else summary.strip()


def laid_out(prompt: str, text: str, tokenizer: Any) -> tuple[Text, Text]:
    """A turn as messages for a model with a chat template, as plain text for one without."""
    if not tokenizer.chat_template:
        return prompt, text
    return ({"role": "user", "content": prompt},), ({"role": "assistant", "content": text},)
