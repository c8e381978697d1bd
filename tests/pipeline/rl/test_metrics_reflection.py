"""What is and what is no reflection, on texts whose every word was chosen."""

import pytest

from veriloop.pipeline.rl.metrics import CHINESE, ENGLISH, Reflection, reflection, reflections

PLAIN = "<think>First 15-5. Then 10. </think><answer>10</answer>"
CHECKED = "<think>First 15-5. Check: 15-7=8 ok. Then 10. </think><answer>10</answer>"
MENDED = "<think>First 14-5. Check: 14-7=7 wrong. Wait, 15-5. Then 10. </think><answer>10</answer>"
ZH_CHECKED = "<think>先算15-5。检验：15-7=8对。再算10。</think><answer>10</answer>"
ZH_MENDED = "<think>先算14-5。检验：14-7=7错。等等，15-5。再算10。</think><answer>10</answer>"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLAIN, Reflection(False, False, 0)),
        (CHECKED, Reflection(True, False, 1)),
        (MENDED, Reflection(True, True, 3)),
        (ZH_CHECKED, Reflection(True, False, 1)),
        (ZH_MENDED, Reflection(True, True, 3)),
        ("", Reflection(False, False, 0)),
    ],
)
def test_checks_and_corrections_are_distinguished_from_plain_work(text, found):
    assert reflection(text) == found


def test_one_check_among_plain_steps_is_enough():
    assert reflection("Then 9. Then 8. Then 7. Check: 7+1=8 ok. ").verifies


def test_a_correction_has_another_value():
    assert reflection("Then 14-5. Check: 14-7=7 wrong. Wait, 15-5. ").corrects
    assert not reflection("Then 14-5. Check: 14-7=7 wrong. Wait, 14-5. ").corrects
    assert not reflection("Then 14-5. Check: 14-7=7 wrong. Wait, ").corrects


def test_the_value_corrected_is_that_of_the_step_and_not_that_of_its_check():
    assert reflection("Then 8. Check: 8+3=11 wrong. Wait, 11. ").corrects


def test_a_second_correction_counts_where_the_first_changes_nothing():
    text = "Then 4. Check: 4+1=5 wrong. Wait, 4. Then 3. Check: 3+1=4 wrong. Wait, 2. "
    assert reflection(text).corrects


def test_waiting_without_a_value_called_wrong_is_no_correction():
    assert reflection("Then 14. Wait, 15. ") == Reflection(False, False, 1)
    assert not reflection("That is wrong. Wait, 15. ").corrects


@pytest.mark.parametrize("word", ENGLISH)
def test_english_words_count_whole_and_in_any_case(word):
    assert reflection(f"so {word.title()}, {word}.").words == 2
    assert reflection(f"un{word}able").words == 0


@pytest.mark.parametrize("word", CHINESE)
def test_chinese_words_count_without_spaces(word):
    assert reflection(f"我{word}我").words == 1


def test_a_step_has_the_shares_and_the_mean():
    assert reflections([PLAIN, CHECKED, MENDED, ZH_MENDED]) == {
        "reflection/verify": 3 / 4,
        "reflection/correct": 2 / 4,
        "reflection/words": 7 / 4,
    }
