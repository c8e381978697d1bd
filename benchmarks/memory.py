"""Peak memory of one GRPO update by vocabulary and by length of an answer.

    python benchmarks/memory.py [--quick] [--json FILE]

Each update runs in a separate process, which reports its peak resident memory (getrusage) after
loading the model and after two updates; the table shows the difference. Besides logits, a
vocabulary of V adds 3 x V x width floats: a gradient and two moments for each weight of the tied
head; they are subtracted. The rest must be constant in the vocabulary, and linear in the tokens of
one answer.
"""

import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from publish import ROOT, arguments, publish, table

WIDTH = 64
MODEL = {
    "hidden_size": WIDTH, "intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2,
}  # fmt: skip
VOCABULARIES = (8192, 32_768, 131_072, 262_144)
LENGTHS = (256, 2048, 8192, 32_768)  # tokens, in one answer
QUICK_VOCABULARIES, QUICK_LENGTHS = (8192, 32_768), (256, 1024)
TOKENS, PLAIN_V = 2048, 8192  # answer tokens where the vocabulary grows; its size where answers do
KEPT = 3  # floats for each weight of the head, beside logits
FLAT_MIB = 64  # from the smallest to the largest vocabulary, at most
BENT = 1.5  # times the memory of a token from one length to the next, at most
PROMPT = 16
MIB = 1 << 20


def child(vocabulary: int, count: int, answer: int) -> dict[str, float]:
    """Two updates in this process."""
    import torch
    from grpo_steps import answers, qwen2, stepper

    from veriloop.pipeline.config.sections import TrainerConfig

    torch.set_num_threads(1)
    model = qwen2(**MODEL, vocab_size=vocabulary)
    graded = answers(count, PROMPT, answer, vocabulary)
    small = stepper(model, answers(8, 4, 4, vocabulary), TrainerConfig())
    del small  # only to import what an update imports
    before = peak_mib()
    step = stepper(model, graded, TrainerConfig())
    for _ in range(2):
        step()
    return {"before_mib": before, "after_mib": peak_mib()}


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def measured(vocabulary: int, count: int, answer: int) -> dict[str, Any]:
    """The memory of a child with these sizes."""
    words = [sys.executable, __file__, "--child", f"{vocabulary},{count},{answer}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{vocabulary=} {count=} {answer=}: {done.stderr[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    head = KEPT * vocabulary * WIDTH * 4 / MIB
    update = result["after_mib"] - result["before_mib"]
    return {
        "vocabulary": vocabulary,
        "answers": count,
        "tokens": count * answer,
        "peak_mib": result["after_mib"],
        "update_mib": update,
        "head_mib": head,
        "rest_mib": update - head,
    }


def shortfalls(by_vocabulary: list[dict[str, Any]], by_length: list[dict[str, Any]]) -> list[str]:
    """Sizes at which memory grows with the vocabulary, or faster than the tokens."""
    first, last = by_vocabulary[0], by_vocabulary[-1]
    grown = last["rest_mib"] - first["rest_mib"]
    failed = []
    if grown > FLAT_MIB:
        failed.append(
            f"memory: {grown:.0f} MiB more at a vocabulary of {last['vocabulary']} than at "
            f"{first['vocabulary']}; at most {FLAT_MIB}"
        )
    for before, after in pairwise(by_length):
        line = before["update_mib"] * after["tokens"] / before["tokens"]
        if after["update_mib"] > BENT * line:
            failed.append(
                f"memory: {after['update_mib']:.0f} MiB at {after['tokens']} tokens, where a line "
                f"through {before['tokens']} says {line:.0f}"
            )
    return failed


def main() -> int:
    options = arguments(__doc__ or "", child={"help": "vocabulary,answers,tokens: one measurement"})
    if options.child:
        print(json.dumps(child(*map(int, options.child.split(",")))))
        return 0
    vocabularies = QUICK_VOCABULARIES if options.quick else VOCABULARIES
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    sizes_of_runs = [(v, TOKENS // 128, 128) for v in vocabularies] + [
        (PLAIN_V, 1, n) for n in lengths
    ]
    with ThreadPoolExecutor(len(sizes_of_runs)) as threads:  # each child's memory is its own
        measurements = list(threads.map(lambda sizes: measured(*sizes), sizes_of_runs))
    by_vocabulary, by_length = measurements[: len(vocabularies)], measurements[len(vocabularies) :]
    header = ["vocabulary", "answers", "tokens", "peak MiB", "update MiB", "head MiB", "rest MiB"]
    names = ("peak_mib", "update_mib", "head_mib", "rest_mib")
    shown = [
        [str(r["vocabulary"]), str(r["answers"]), str(r["tokens"]), *(f"{r[n]:.0f}" for n in names)]
        for r in (*by_vocabulary, *by_length)
    ]
    results = {"vocabulary": by_vocabulary, "length": by_length}
    failed = shortfalls(by_vocabulary, by_length)
    return publish(options, table(header, shown), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
