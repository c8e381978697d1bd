"""Work is read back as it was written, and judged step by step."""

from random import Random

import pytest

from benchmarks.worked_steps import WorkedStep, worked_steps
from veriloop.data.arithmetic import draw, parse
from veriloop.data.corpus import Mix, worked


def read(expression, text):
    return list(worked_steps(expression, text))


def test_a_step_knows_what_it_began_with_and_whether_it_holds():
    right, wrong, on = read("8+7-5+2", "First 15-5+2. Then 11+2. Then 13. ")
    assert right == WorkedStep(parse("8+7-5+2"), parse("15-5+2"), None, None)
    assert right.holds and not right.mends
    assert not wrong.holds and not wrong.mends
    assert on.before == parse("11+2") and on.holds  # of the wrong value, the right sum


def test_a_check_gives_its_verdict():
    ok, bad = read("8+7-5", "First 15-5. Check: 15-7=8 ok. Then 9. Check: 9+5=14 wrong. Wait, 10. ")
    assert ok.verdict is True and ok.mended is None and not ok.mends
    assert bad.verdict is False and bad.mended == parse("10")
    assert not bad.holds and bad.mends


@pytest.mark.parametrize(
    ("text", "holds", "mends"),
    [
        ("First 14-5. Check: 14-7=7 wrong. Wait, 13-5. ", False, False),
        ("First 15-5. Check: 15-7=7 wrong. Wait, 14-5. ", True, False),
        ("First 15-5. Check: 15-7=7 wrong. Wait, 15-5. ", True, False),
        ("First 14-5. Check: 14-7=8 ok. ", False, False),
        ("先算14-5。检验：14-7=7错。等等，15-5。", False, True),
        ("先算14-5。检验：14-7=8对。", False, False),
        ("First 14. ", False, False),
    ],
)
def test_only_a_wrong_step_put_right_is_mended(text, holds, mends):
    (step,) = read("8+7-5", text)
    assert (step.holds, step.mends) == (holds, mends)


def test_the_next_step_continues_from_the_correction():
    _, then = read("8+7-5", "First 14-5. Check: 14-7=7 wrong. Wait, 15-5. Then 10. ")
    assert then.before == parse("15-5") and then.holds


def test_a_step_too_many_holds_nothing():
    *_, last = read("8+7", "First 15. Then 15. ")
    assert last.before == parse("15") and not last.holds


def test_text_without_steps_has_none():
    assert read("8+7-5", "<think>I guess 10.</think><answer>10</answer>") == []


@pytest.mark.parametrize("habit", ["steps", "verify"])
@pytest.mark.parametrize("mixing", [False, True])
def test_what_the_corpus_writes_is_read_back_whole(habit, mixing):
    random = Random(3)
    mended = 0
    for _ in range(300):
        chain = draw(random, "train")
        text, value = worked(random, chain, habit, "zh", errors=(0.3, 0.3), mixing=mixing)
        found = read(str(chain), text)
        assert len(found) == len(chain.rest)
        assert {step.verdict is None for step in found} == {habit == "steps"}
        last = found[-1]
        assert (last.mended or last.stated).first == value
        if habit == "verify":  # the corpus catches all, mends all and raises no false alarm
            assert all(step.verdict is step.holds for step in found)
            assert all(step.mends for step in found if not step.holds)
            mended += sum(step.mends for step in found)
    assert habit == "steps" or mended > 100


def test_myths_are_steps_that_do_not_hold():
    mix = Mix(myths=1.0, believed=1.0)
    text, value = worked(Random(0), parse("8+7-5"), "steps", "en", errors=(0.0, 0.0), mix=mix)
    assert not any(step.holds for step in read("8+7-5", text)) and value != 10
