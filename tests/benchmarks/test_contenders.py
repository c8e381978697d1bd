"""Comparisons with TRL say so when a bar is missed, or when they compare different work."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """A benchmark as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def row(name, rate=1.0, loss=6.2, norm=1.0):
    first = {"loss": loss, "grad_norm": norm}
    return {"task": "sft", "size": "1M", "name": name, "tokens_per_s": rate, "first": first,
            "tokens": 90.0, "products_s": 1.5 if "float32" in name else 1.0}  # fmt: skip


def test_the_best_of_ours_is_held_against_the_best_of_trl(script):
    tuning = script("tuning_speed")
    rows = [row("TRL", 10.0), row("TRL, packed, float32", 20.0), row("ours, float32", 30.0)]
    assert tuning.shortfalls([*rows, row("ours, bfloat16", 40.0)]) == []
    assert tuning.shortfalls([*rows, row("ours, bfloat16", 39.0)]) == [
        "sft: 1.95 x TRL at its best, wanted 2.0; with its matrix products alone it would be 4.50 x"
    ]


def test_a_grpo_step_is_held_against_trl_at_equal_precision(script):
    against = script("against_trl")

    def rows(single, half):
        names = {"TRL, searched, float32": 10.0, "TRL, searched, bfloat16": 20.0}
        names |= {"ours, vLLM": single, "ours, torch": 1.0, "ours, vLLM, bf16": half}
        precise = [row(n, rate) | {"precision": against.PRECISION[n]} for n, rate in names.items()]
        return [*precise, row("TRL", 1.0), row("ours, vLLM, bf16 trainer", 999.0)]

    assert against.shortfalls(rows(20.0, 40.0)) == []
    assert against.shortfalls(rows(19.0, 40.0)) == [
        "1M: 1.90 x TRL at its best in float32, wanted 2.0"
    ]
    assert against.shortfalls(rows(20.0, 30.0)) == [
        "1M: 1.50 x TRL at its best in bfloat16, wanted 2.0"
    ]


def test_the_search_keeps_each_setting_of_trl_that_is_faster_and_lists_all_trials(script):
    against = script("against_trl")

    def measure(contender):
        settings = contender.settings
        if settings["micro_batch"] == 128:
            raise SystemExit("out of memory")
        rate = {32: 10.0, 16: 12.0}[settings["micro_batch"]]
        rate += 5.0 * contender.as_intel - 1.0 * ("cache_implementation" in settings)
        return rate + 2.0 * ("torch_compile" in settings)

    best, trials = against.searched("1M", "bfloat16", measure)
    assert best.settings == {
        "bf16": True, "gradient_checkpointing": False, "micro_batch": 16, "torch_compile": True,
    }  # fmt: skip
    assert best.as_intel and (best.side, best.name) == ("trl", "TRL, searched, bfloat16")
    rates = [trial["tokens_per_s"] for trial in trials]
    assert rates == [0.0, 10.0, 12.0, 17.0, 16.0, 19.0]

    def never(contender):
        raise SystemExit("killed")

    with pytest.raises(SystemExit, match="1M: TRL runs with none of the settings tried in float32"):
        against.searched("1M", "float32", never)


def test_equal_is_an_interval_within_a_margin(script):
    paired = script("paired")
    assert paired.differs("x", (0.01, 0.01), 0.02) == []
    assert paired.differs("x", (-0.015, 0.004), 0.02) == []
    assert paired.differs("x", (-0.015, 0.006), 0.02) == [
        "x: -0.0150 ± 0.0060 (95 %) is not within ±0.02"
    ]
    assert paired.differs("x", paired.interval([0.0]), 0.02) != []  # one seed shows nothing
    mean, half = paired.interval([0.0, 1.0] * 3)
    assert mean == 0.5 and half == pytest.approx(2.571 * 0.3**0.5 / 6**0.5)
    with pytest.raises(ValueError, match="13 seeds: T_95 has up to 12"):
        paired.interval([0.0] * 13)


def test_trials_are_kept_and_the_contenders_of_a_precision_take_turns(
    script, tmp_path, monkeypatch
):
    against, turns = script("against_trl"), []

    def in_turn(running, warm_up, rounds):
        turns.append(running)
        return [row(contender.name, 1.0) for contender in running]

    monkeypatch.setattr(against, "in_turn", in_turn)
    monkeypatch.setattr(against, "Process", lambda contender, *_: contender)
    monkeypatch.setattr(against, "model_of", lambda path, shape: path)
    monkeypatch.setattr(against, "with_trl_template", lambda path: path)
    commit = {"commit": "a", "dirty": False}
    monkeypatch.setattr(against, "git", lambda _: commit)

    def measure(precisions=("float32", "bfloat16")):
        turns.clear()
        found = against.measured("1M", precisions, 3, tmp_path)
        return found, [[one.name for one in running] for running in turns]

    found, asked = measure()
    assert len(asked) == 2 * 6 + 2 and asked[6] == [
        "TRL, searched, float32", "ours, vLLM", "ours, torch",
    ]  # fmt: skip
    assert asked[-1] == [
        "TRL", "TRL, searched, bfloat16", "ours, vLLM, bf16 trainer", "ours, vLLM, bf16",
    ]  # fmt: skip
    assert [one["name"] for one in found] == asked[6] + asked[-1]
    assert [len(one.get("trials", ())) for one in found] == [6, 0, 0, 0, 6, 0, 0]
    assert found[3]["settings"] == {"as_intel": False} and "settings" not in found[1]
    again, asked = measure()
    assert asked == [] and again == found
    commit["commit"] = "b"
    assert len(measure(["float32"])[1]) == 6 + 2  # TRL as it installs takes turns with nobody
    commit["dirty"] = None
    assert len(measure(["float32"])[1]) == 6 + 2


def test_a_ratio_at_equal_precision_needs_both_sides(script):
    rows = [row("ours, vLLM", 3.0) | {"precision": "float32"}, row("TRL", 1.0)]
    assert script("paired").at_equal_precision(rows) == {}


def test_a_contender_with_another_loss_or_gradient_does_other_work(script):
    tuning = script("tuning_speed")
    own = row("ours, float32")
    assert tuning.disagreements([own, row("TRL, tuned, float32", loss=6.2001)]) == []
    for other in ({"loss": 6.3}, {"norm": 1.01}):
        (told,) = tuning.disagreements([own, row("TRL, tuned, float32", **other)])
        assert "TRL, tuned, float32" in told
    assert tuning.disagreements([own, row("TRL", norm=1.01)]) == []  # in bfloat16
    assert len(tuning.disagreements([own, row("TRL", norm=1.05)])) == 1


def test_the_least_peak_of_ours_is_held_against_the_least_of_trl(script):
    memory = script("grpo_memory")
    rows = [
        {"at_once": at_once, "name": name, "peak_gib": peak}
        for at_once, name, peak in [
            (16, "TRL", 8.0), (16, "TRL, float32", 4.0), (16, "ours", 1.0), (16, "ours, b", 2.0),
            (1, "TRL", 2.0), (1, "ours", 1.5),
        ]
    ]  # fmt: skip
    assert memory.shares(rows) == {16: 0.25, 1: 0.75}


def test_what_is_judged_can_stand_in_place_of_what_was_answered(script):
    turns, judged = script("grpo_turns"), []
    pool = SimpleNamespace(judge_all=judged.extend)
    turns._judge_instead(pool, lambda problem, text: (problem + 1, text.upper()))
    pool.judge_all([(1, "a"), (2, "b")])
    assert judged == [(2, "A"), (3, "B")]


def test_verdicts_that_are_waited_for_too_long_are_reported(script):
    rows = [{"size": "1M", "name": "sums", "share": 0.03}, {"size": "10M", "name": "mathematics"}]
    assert script("verify_share").shortfalls([rows[0], rows[1] | {"share": 0.0312}]) == [
        "10M, mathematics: verification is 3.1% of a step, wanted 3%"
    ]


def test_the_power_that_seconds_grow_by_is_found(script):
    scaling = script("scaling")
    rows = [
        {"axis": "a", "at": x, "s": 3 * x, "sample": x**2, "verify": 5, "update": x**0.5, "sync": 1}
        for x in (1, 2, 8)
    ]
    found = scaling.powers(rows)["a"]
    wanted = {"s": 1, "sample": 2, "verify": 0, "update": 0.5, "sync": 0}
    assert found == pytest.approx(wanted, abs=1e-9)


def test_a_curve_is_held_against_trls_of_the_same_seed(script):
    curves = script("trl_curves")
    rows = [
        {"side": side, "seed": seed, "rewards": [0.0, 0.0, 0.0, seed + more]}
        for seed in (0, 1, 2)
        for side, more in (("ours", 0.5), ("ours, bf16", 0.25 + 0.1 * seed), (curves.TRL, 0.25))
    ]
    assert curves.gap(rows, "ours", 0.25) == (0.25, 0.0)
    assert curves.gap(rows, "ours", 1.0) == (0.0625, 0.0)
    mean, noise = curves.gap(rows, "ours, bf16", 0.25)
    assert mean == pytest.approx(0.1) and noise == pytest.approx(4.303 * 0.1 / 3**0.5)


def test_both_sides_are_given_sequences_of_mixed_lengths(script):
    turns = script("tuning_turns")
    lengths = [len(prompt) + len(answer) for prompt, answer in turns.answers(32)]
    assert (min(lengths), max(lengths), len(lengths)) == (20, 400, 32)
    assert turns.answers(32) == turns.answers(32) and turns.pairs(32) == turns.pairs(32)
    assert all(chosen != rejected for _, chosen, rejected in turns.pairs(32))
    sides = [len(chosen) > len(rejected) for _, chosen, rejected in turns.pairs(32)]
    assert any(sides) and not all(sides)


def test_a_contender_that_ends_is_reported_with_what_it_said(script, tmp_path, monkeypatch):
    contenders = script("contenders")
    monkeypatch.setattr(contenders, "__file__", str(tmp_path / "contenders.py"))
    (tmp_path / "ending.py").write_text("import sys\nprint('noise')\nsys.exit('no such side')\n")
    one = contenders.Contender(name="one", side="ours", settings={})
    process = contenders.Process(one, "ending.py", tmp_path, tmp_path)
    with pytest.raises(SystemExit, match=r"(?s)one ended:.*no such side"):
        process.step()
    process.process.wait(10)
    process.process.stdin.close()
    process.process.stdout.close()


def test_contenders_take_turns_and_their_first_steps_are_left_out(script, tmp_path, monkeypatch):
    contenders = script("contenders")
    monkeypatch.setattr(contenders, "__file__", str(tmp_path / "contenders.py"))
    (tmp_path / "turn.py").write_text(
        "import json, sys\n"
        "name, order = json.loads(sys.argv[3])['name'], sys.argv[2] + '/order'\n"
        "for n, _ in enumerate(sys.stdin):\n"
        "    print(name, file=open(order, 'a'))\n"
        "    told = {'s': n + 1, 'cpu_s': 1, 'tokens': 10, 'peak_gib': n}\n"
        "    print(json.dumps(told), flush=True)\n"
    )
    running = [
        contenders.Process(
            contenders.Contender(name=name, side="ours", settings={"name": name}),
            *("turn.py", tmp_path, tmp_path),
        )
        for name in "AB"
    ]
    first, second = contenders.in_turn(running, 1, 3)
    assert (tmp_path / "order").read_text().split() == ["A", "B"] * 4
    assert (first["name"], second["name"]) == ("A", "B")
    assert first["s"] == 3 and first["peak_gib"] == 3 and len(first["steps"]) == 3
    assert first["first"]["s"] == 1 and first["tokens_per_s"] == pytest.approx(10 / 3)


def test_no_later_round_begins_when_the_time_is_up(script):
    contenders = script("contenders")
    step = {"s": 1, "cpu_s": 1, "tokens": 10, "peak_gib": 1}
    one = SimpleNamespace(
        name="one", step=lambda: step, steps=[], kill=lambda: None, close=lambda: None
    )
    (row,) = contenders.in_turn([one], 1, 5, seconds=0.0)
    assert len(row["steps"]) == 1
