"""Generated preferences over answers to chains of sums in TRL's layout, correct by construction.

There are four levels of answers, from best to worst: solved in steps with the required tags;
correct without tags; tagged with an error in the last step; a wrong guess in a broken layout.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from veriloop.data.arithmetic import Chain, draw, question
from veriloop.data.corpus import slip
from veriloop.data.corpus_phrases import PHRASES, Phrases

Kind = Literal["pairs", "labelled", "ranked"]
LEVELS = 4


def rows(kind: Kind, seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` rows of the RL split, which depend only on the arguments."""
    draw_row = {"pairs": _pair, "labelled": _labelled, "ranked": _ranked}[kind]
    for index in range(count):
        yield draw_row(Random(f"preferences/{kind}/{seed}/{index}"))


def _prompt(random: Random) -> tuple[list[dict[str, str]], Chain, Phrases]:
    chain = draw(random, "rl")
    language = random.choice(("en", "zh"))
    prompt = [{"role": "user", "content": question(chain, language, random)}]
    return prompt, chain, PHRASES[language]


def _message(segments: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": "".join(segment["text"] for segment in segments)}]


def _pair(random: Random) -> dict[str, Any]:
    prompt, chain, phrases = _prompt(random)
    worse = random.randrange(1, LEVELS)
    chosen, rejected = (answer(level, chain, phrases, random) for level in (0, worse))
    return {
        "prompt": prompt,
        "chosen": _message(chosen),
        "rejected": _message(rejected),
        "score_chosen": LEVELS - 1,
        "score_rejected": LEVELS - 1 - worse,
        "chosen_segments": chosen,
        "rejected_segments": rejected,
    }


def _labelled(random: Random) -> dict[str, Any]:
    prompt, chain, phrases = _prompt(random)
    label = random.random() < 0.5
    level = 0 if label else random.randrange(1, LEVELS)
    return {
        "prompt": prompt,
        "completion": _message(answer(level, chain, phrases, random)),
        "label": label,
    }


def _ranked(random: Random) -> dict[str, Any]:
    prompt, chain, phrases = _prompt(random)
    answers = [answer(level, chain, phrases, random) for level in range(LEVELS)]
    return {"prompt": prompt, "ranked": [_message(segments) for segments in answers]}


def answer(level: int, chain: Chain, phrases: Phrases, random: Random) -> list[dict[str, Any]]:
    """An answer of a level, 0 the best, as segments with a score in [0, 1] for each aspect."""
    if level == 3:
        wrong = slip(random, chain.value)
        return [
            _segment(f"<think>{phrases.guess}{wrong}{phrases.dot}<answer>{wrong}</answer>", 0, 0)
        ]
    pieces, value = _steps(chain, phrases, slipping=level == 2, random=random)
    right, tagged = level != 2, level != 1
    steps = [_segment(text, right or i + 1 < len(pieces), 1) for i, text in enumerate(pieces)]
    if not tagged:
        steps[0]["scores"][1] = 0.0
        return [*steps, _segment(f"{phrases.so}{value}", right, 0)]
    steps[0]["text"] = f"<think>{steps[0]['text']}"
    return [*steps, _segment(f"</think><answer>{value}</answer>", right, 1)]


def _steps(
    chain: Chain, phrases: Phrases, *, slipping: bool, random: Random
) -> tuple[list[str], int]:
    """The text of each step, and the final value. Only the last step can contain an error: an
    earlier one would show a remainder that may be held out."""
    pieces: list[str] = []
    while chain.rest:
        chain = chain.step()
        if slipping and not chain.rest:
            chain = Chain(slip(random, chain.first), ())
        word = phrases.then if pieces else phrases.first
        pieces.append(f"{word}{chain}{phrases.stop}")
    return pieces, chain.first


def _segment(text: str, correct: float, as_asked: float) -> dict[str, Any]:
    return {"text": text, "scores": [float(correct), float(as_asked)]}
