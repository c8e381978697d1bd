"""Accuracy and speed of the `language` verifier's share of the target language.

    python benchmarks/verify_language.py [--quick] [--json FILE]

Chains of thought are composed of sentences in seven languages, so that the true share is known: a
word is a run of letters, an ideograph or a kana. Formulas, code and undelimited variables between
them are not words. Speed is documents per second of CPU time.
"""

import re
import sys
import time
from collections.abc import Callable
from random import Random
from statistics import fmean

from language_sentences import CODE, FORMULAS, INSERTS, SENTENCES, VARIABLES
from publish import arguments, publish, table

from veriloop.verifiers.text.language import share

GOAL_ERROR = 0.02  # mean absolute error of the share, in every group
GOAL_SPEED = 4_000  # documents per CPU second
LATIN = ("en", "de", "es", "fr")
WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\d_\u3040-\u30ff\u4e00-\u9fff]+(?:['’]\w+)*")

Document = tuple[str, str, float]  # text, target language, true share
Maker = Callable[[Random], Document]


def size(text: str) -> int:
    return len(WORD.findall(text))


def document(random: Random, target: str, other: str, mixed: float, notation: float) -> Document:
    """Sentences of `target`, a share `mixed` of them of `other`, with formulas and code between."""
    pieces: list[str] = []
    counts = {target: 0, other: 0}
    for _ in range(random.randint(12, 22)):
        language = other if random.random() < mixed else target
        sentence = random.choice(SENTENCES[language])
        counts[language] += size(sentence)
        pieces.append(sentence)
        if random.random() < notation:
            pieces.append(random.choice(FORMULAS))
        if random.random() < notation / 4:
            pieces.append(random.choice(CODE))
    total = sum(counts.values())
    return " ".join(pieces), target, counts[target] / total


def switched(random: Random, target: str, other: str) -> Document:
    """Sentences of `target` with words or clauses of `other` inside them."""
    pieces: list[str] = []
    inside = outside = 0
    for _ in range(random.randint(10, 18)):
        before, insert, after = random.choice(INSERTS[target, other])
        inside += size(before) + size(after)
        outside += size(insert)
        pieces.append(f"{before}{insert}{after}")
    return " ".join(pieces), target, inside / (inside + outside)


def undelimited(random: Random, target: str) -> Document:
    """Sentences with bare variables, functions and units, which are not of another language."""
    return " ".join(random.choices(VARIABLES[target], k=random.randint(8, 16))), target, 1.0


def groups() -> dict[str, Maker]:
    """Functions that generate a document, by name of the group."""
    makers: dict[str, Maker] = {}
    for language in SENTENCES:
        makers[f"pure {language}, heavy TeX and code"] = lambda r, language=language: document(
            r, language, language, 0, 0.9
        )
    makers["en and zh, by sentence"] = lambda r: document(
        r, *pair(r, ("en", "zh")), r.random(), 0.3
    )
    makers["Latin scripts, by sentence"] = lambda r: document(r, *pair(r, LATIN), r.random(), 0.2)
    makers["ru and others, by sentence"] = lambda r: document(
        r, *pair(r, ("ru", r.choice(("en", "zh", "de")))), r.random(), 0.2
    )
    makers["ja and others, by sentence"] = lambda r: document(
        r, *pair(r, ("ja", r.choice(("en", "zh")))), r.random(), 0.2
    )
    for target, other in INSERTS:
        makers[f"{target} with {other} inside"] = lambda r, t=target, o=other: switched(r, t, o)
    for language in VARIABLES:
        makers[f"undelimited maths, {language}"] = lambda r, language=language: undelimited(
            r, language
        )
    return makers


def pair(random: Random, among: tuple[str, ...]) -> tuple[str, str]:
    first, other = random.sample(among, 2)
    return first, other


def main() -> int:
    options = arguments(__doc__ or "")
    count = 10 if options.quick else 100
    share("Warm up, please.", "en")
    share("Zzyzx grombly vantiful snork.", "fr")  # loads the model
    rows, documents, characters, taken = [], 0, 0, 0.0
    for name, make in groups().items():
        random = Random(name)
        corpus = [make(random) for _ in range(count)]
        began = time.process_time()
        shares = [share(text, target)[0] for text, target, _ in corpus]
        taken += time.process_time() - began
        documents += len(corpus)
        characters += sum(len(text) for text, _, _ in corpus)
        errors = [
            abs(estimate - truth) for estimate, (_, _, truth) in zip(shares, corpus, strict=True)
        ]
        sides = [
            (estimate > 0.9) == (truth > 0.9)
            for estimate, (_, _, truth) in zip(shares, corpus, strict=True)
        ]
        rows.append([name, fmean(errors), max(errors), fmean(sides)])
    speed = documents / taken
    failed = [
        f"{row[0]}: mean error {row[1]:.3f} > {GOAL_ERROR}" for row in rows if row[1] > GOAL_ERROR
    ]
    if speed < GOAL_SPEED and not options.quick:
        failed.append(f"{speed:.0f} documents per CPU second, fewer than {GOAL_SPEED}")
    header = ["group", "mean abs. error", "largest", "right side of 0.9"]
    text = f"{table(header, rows)}\n\n{documents} documents, {speed:.0f} per CPU second"
    keys = ("group", "mean_abs_error", "max_abs_error", "right_side_of_0.9")
    results = {
        "groups": [dict(zip(keys, row, strict=True)) for row in rows],
        "documents": documents,
        "mean_chars": characters / documents,
        "documents_per_cpu_second": speed,
    }
    return publish(options, text, results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
