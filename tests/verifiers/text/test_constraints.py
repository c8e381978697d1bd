"""Every instruction id with texts that follow it and texts that do not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.text.constraints import (
    followed,
    instructed_text,
    read_instructions,
    variants,
)
from veriloop.verifiers.text.instruction_text import CHECKS, follows, sentences, words
from veriloop.verifiers.text.words import words as all_words

ASK = "Write a poem about rain."
UNRELATED = "Lorem ipsum"  # two words of no language, which follow no instruction of the table
CASES = {  # id: (kwargs, texts that follow it, texts that do not)
    "keywords:existence": (
        {"keywords": ["rain", "wind"]},
        ["Rain and WIND, all day", "*rain* and ｗｉｎｄ", "a rain\u200by wind of ra\u200bin"],
        ["rain", "brain drain", "rains and windy days"],
    ),
    "keywords:frequency": (
        {"keyword": "rain", "frequency": 2, "relation": "at least"},
        ["rain, Rain"],
        ["rain", "snow", "rain and training"],
    ),
    "keywords:forbidden_words": (
        {"forbidden_words": ["rain", "lorem"]},
        ["brainy days"],
        ["The Rain!", "it is rain", "ra\u200bin", "r\u00adain", "_rain_", "ｒａｉｎ", "ra\u2060in"],
    ),
    "keywords:letter_frequency": (
        {"letter": "q", "let_frequency": 2, "let_relation": "at least"},
        ["Quick quiz"],
        ["quiz"],
    ),
    "language:response_language": (
        {"language": "de"},
        ["Das ist ein schöner Tag und wir gehen nach Hause."],
        ["This is a fine day.", "12345", "这是一个好日子。"],
    ),
    "length_constraints:number_sentences": (
        {"num_sentences": 2, "relation": "at least"},
        ["One. Two!", "Is it? It is.", "A. B."],
        ["One.", "Dr. Smith paid 3.50 today.", "J. R. R. Tolkien wrote.", "A."],
    ),
    "length_constraints:number_paragraphs": (
        {"num_paragraphs": 2},
        ["a\n***\nb", "***\na\n***\nb\n***"],
        ["a", "a *** *** b", "a\n\nb"],
    ),
    "length_constraints:number_words": (
        {"num_words": 3, "relation": "at least"},
        ["one two three"],
        ["one two", "- - - -"],
    ),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "rain"},
        ["a\n\nRain, b", "a\n\n'rain' b"],
        ["rain\n\na", "a\n\nrainy", "a\n\nrain\n\nb"],
    ),
    "detectable_content:number_placeholders": (
        {"num_placeholders": 2},
        ["[name] and [date]"],
        ["[name]", "[] []"],
    ),
    "detectable_content:postscript": (
        {"postscript_marker": "P.S."},
        ["Bye. P.S. More.", "p. s. more"],
        ["Bye", "P.S.", "PSP.S"],
    ),
    "detectable_format:number_bullet_lists": (
        {"num_bullets": 2},
        ["* a\n* b", "- a\n  - b", "* a\n* \n* b", "- 👍\n- 7"],
        ["* a", "* a\n* b\n* c", "a\nb", "---\n***", "* \u200b\n* \u200b", "* .\n* -"],
    ),
    "detectable_format:constrained_response": (
        {},
        ["My answer is yes."],
        ["Yes.", "My answer is yes. My answer is no."],
    ),
    "detectable_format:number_highlighted_sections": (
        {"num_highlights": 2},
        ["*a* and **b**"],
        ["*a*", "** **", "* *  * *", "*.* *.*", "*\u200b* *\u200b*"],
    ),
    "detectable_format:multiple_sections": (
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb"],
        ["Section 1", "Section 1 Section 1", "Sections"],
    ),
    "detectable_format:json_format": (
        {},
        ['{"a": 1}', "```json\n[1]\n```"],
        ["{a: 1}", "[NaN]", "42", 'Here: {"a": 1}', '"text"'],
    ),
    "detectable_format:title": ({}, ["<<Rain>>\ntext"], ["<< >>", "<Rain>", "Rain"]),
    "combination:two_responses": (
        {},
        ["a ****** b", "a\n******\nb\n******"],
        ["a", "a ****** a", "a ****** b ****** c", "a*******b", "a ****** A.", "a *** b"],
    ),
    "combination:repeat_prompt": (
        {"prompt_to_repeat": ASK},
        [f"{ASK} Drops fall.", f"{ASK.upper()}\n\nok"],
        [ASK, "Drops fall.", f"Sure: {ASK} ok"],
    ),
    "startend:end_checker": (
        {"end_phrase": "Any questions?"},
        ["Hm. any questions?", '"Any questions?"'],
        ["Any", "Any questions? No.", "Many questions?"],
    ),
    "startend:quotation": (
        {},
        ['"all of it"', '"He said "no" to me."', '""Hello," he said."', '"He said: "no.""'],
        [
            '"half',
            "none",
            '"',
            '""',
            '"a" and "b"',
            '"a", "b"',
            '"I" is what I say. "You"',
            '"She said "no" and then "yes"',
        ],
    ),
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["BIG RAIN"],
        ["BIG rain", "Big Rain"],
    ),
    "change_case:english_capital": (
        {},
        ["THIS IS ALL THAT WE HAVE."],
        ["This is all.", "DAS IST NICHT SO EINFACH", "123"],
    ),
    "change_case:english_lowercase": (
        {},
        ["this is all that we have."],
        ["This is all.", "das ist nicht so einfach", "123"],
    ),
    "punctuation:no_comma": ({}, ["no such mark"], ["one, two", "一，二"]),
    "copy:repeat_phrase": (
        {"phrase": "Time flies when having fun", "small_n": 2},
        ["Time runs when having fun. Time flies while having fun."],
        [
            "Time runs when having fun.",
            "Time flies when having fun. " * 2,
            "Time runs while having fun. Time flies while having fun.",
        ],
    ),
    "copy:copy": ({"prompt_to_repeat": ASK}, [ASK, f" {ASK.lower()}\n"], ["Rain.", f"{ASK} ok"]),
    "copy:copying_simple": ({"prompt_to_repeat": ASK}, [ASK], ["Rain.", f"{ASK} {ASK}"]),
    "copy:copying_multiple": (
        {"prompt_to_repeat": ASK, "N": 2},
        [f"{ASK}\n******\n{ASK}"],
        [ASK, f"{ASK} {ASK}", f"{ASK}******x", f"{ASK}******{ASK}******{ASK}"],
    ),
    "new:copy_span_idx": (
        {"prompt_to_repeat": ASK, "n_start": 6, "n_end": 11},
        ["a poem"],
        ["poem", "a poem about"],
    ),
    "detectable_format:sentence_hyphens": (
        {},
        ["It rains.-We run.-Good."],
        ["It rains.", "It rains. We run.", "It rains.- We run."],
    ),
    "keywords:no_adjacent_consecutive": (
        {},
        ["rain always wins"],
        ["all birds", "rain", "rain so"],
    ),
    "detectable_format:square_brackets": (
        {},
        ["[It] [rains.]", "[one]"],
        ["[It] rains", "[It rains]", "[] []", "it"],
    ),
    "keywords:word_once": (
        {"keyword": "rain"},
        ["Rain.", "Rain in Spain trains"],
        ["rain rain", "snow"],
    ),
    "keywords:word_count_different_numbers": (
        {"keyword": "rain", "frequency": 2},
        ["rain Rain"],
        ["rain", "rain rain rain"],
    ),
    "keywords:exclude_word_harder": ({"keyword": "lorem"}, ["brainy"], ["Lorem", "a lorem."]),
    "paragraphs:paragraphs": ({}, ["a\n***\nb", "a\n* * *\nb"], ["a", "a *** b *** c", "a\n\nb"]),
    "paragraphs:paragraphs2": ({}, ["a\n\nb"], ["a", "a\nb", "a\n\nb\n\nc", "a\n\n\n\nb"]),
    "first_word:first_word_sent": (
        {"first_word": "rain"},
        ["Rain falls. Rain stops."],
        ["Rain falls. It stops.", "It rains."],
    ),
    "first_word:first_word_answer": (
        {"first_word": "rain"},
        ["Rain, of course"],
        ["It rains", "..."],
    ),
    "last_word:last_word_sent": (
        {"last_word": "rain"},
        ["I like rain. You hate Rain!"],
        ["I like rain. You do not.", "..."],
    ),
    "last_word:last_word_answer": ({"last_word": "rain"}, ["I like rain."], ["Rain it is", "..."]),
    "detectable_format:bigram_wrapping": (
        {},
        ["<<I am>> <<at home>>", "<<I am>> home"],
        ["<<I>> <<am>>", "I am", "<<I am>> at home"],
    ),
    "punctuation:punctuation_dot": ({}, ["no such mark!"], ["Yes.", "3.5", "好。"]),
    "punctuation:punctuation_exclamation": ({}, ["Calm."], ["Oh!", "好！"]),
    "count:lowercase_counting": ({"N": 0}, ["RAIN"], ["rain falls", "RAIN falls", "..."]),
    "letters:letter_counting": (
        {"N": 5, "relation": "less than"},
        ["rain"],
        ["rains a lot", "lorem"],
    ),
    "letters:letter_counting2": (
        {"letter": "a", "let_frequency": 1, "let_relation": "at least"},
        ["rain"],
        ["no"],
    ),
    "count:counting_composition": (
        {"n_sent": 2, "n_words": 2},
        [
            "It rains. We run.\n***\nYou stay. They go.\n***\nAll well. Good bye.",
            "Aa bb. Cc dd.\n* * *\nEe ff. Gg hh.\n* * *\nIi jj. Kk ll.",
        ],
        ["It rains. We run.", "It rains.\n***\nIt rains.\n***\nIt rains."],
    ),
    "count:count_unique": ({}, ["each word once."], ["one and one", "One one", "one"]),
    "count:count_increment_word": (
        {"keyword1": "rain", "keyword2": "wind"},
        ["wind rain wind"],
        ["rain wind", "rain rain wind wind"],
    ),
    "keywords:palindrome": (
        {},
        ["Look, a level!", "A man, a plan, a canal: Panama"],
        ["I see a - o", "no such word", "aaa mmm"],
    ),
    "keywords:keyword_specific_position": (
        {"keyword": "rain", "n": 2, "m": 3},
        ["Hm. I like rain."],
        ["I like rain. Hm.", "Hm. Rain it is."],
    ),
    "keywords:start_end": ({}, ["Rain is rain"], ["Rain is rain.", "rain", "It rains"]),
}
FINE_WITH_ANYTHING = {  # what forbids something is followed by a text about something else
    "punctuation:no_comma", "punctuation:punctuation_dot", "punctuation:punctuation_exclamation",
    "keywords:no_adjacent_consecutive", "count:count_unique",
}  # fmt: skip


def test_ideographs_have_no_word_boundaries():
    for text, keyword, count in (("我爱下雨天下雨", "下雨", 2), ("下雨rain了", "rain", 1)):
        kwargs = {"keyword": keyword, "frequency": count}
        assert follows(text, "keywords:word_count_different_numbers", kwargs)


HINDI = "हिन्दी भाषा सुन्दर है"  # four words; vowel signs and the virama are no letters to Python


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (HINDI, 4), ("বাংলা ভাষা", 2), ("தமிழ் மொழி", 2), ("شَمْسٌ وَقَمَرٌ", 2), ("שָׁלוֹם", 1),
        ("cafe\u0301 x", 2),
    ],
)  # fmt: skip
def test_marks_belong_to_the_word_of_their_letter(text, count):
    assert len(words(text)) == len(all_words(text)) == count


def test_a_keyword_is_no_whole_word_before_a_vowel_sign():
    for keyword, found in (("भाषा", True), ("भाष", False), ("ाषा", True)):
        arguments = {"keywords": [keyword]}
        assert follows(HINDI, "keywords:existence", arguments) == found
    assert follows(HINDI, "length_constraints:number_words",
                   {"num_words": 5, "relation": "less than"})  # fmt: skip


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("mr", "मराठी ही एक महत्त्वाची भाषा आहे. ती महाराष्ट्रात बोलली जाते आणि तिचा इतिहास खूप जुना आहे."),
        ("kn", "ಕನ್ನಡ ಭಾಷೆ ಸುಂದರವಾಗಿದೆ"),
        ("gu", "ગુજરાતી ભાષા સુંદર છે"),
        ("pa", "ਪੰਜਾਬੀ ਭਾਸ਼ਾ ਸੁੰਦਰ ਹੈ"),
        ("ml", "മലയാളം മനോഹരമാണ്"),
        ("sw", "Habari za asubuhi. Mimi ninasoma kitabu kizuri na ninapenda kuandika kila siku."),
    ],
)  # fmt: skip
def test_the_languages_of_the_benchmark_are_told_apart(language, text):
    assert follows(text, "language:response_language", {"language": language})
    assert not follows("Das ist ein Haus.", "language:response_language", {"language": language})


def test_a_language_that_cannot_be_identified_is_our_error():
    with pytest.raises(ValueError, match="language 'xx' cannot be identified"):
        follows("A text.", "language:response_language", {"language": "xx"})


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("**P.S.** more", True), ("*P.S.* more", True), ("_P.S._ more", True),
        ("**P.S. more**", True), ("(P.S. more)", True), ("P.S.", False), ("**P.S.**", False),
        ("P.S. **", False), ("UPS. more", False), ("P.P.S. more", False),
    ],
)  # fmt: skip
def test_a_postscript_may_be_set_off_by_markdown_and_needs_a_text(text, right):
    arguments = {"postscript_marker": "P.S."}
    assert follows(text, "detectable_content:postscript", arguments) == right


def test_a_word_beside_an_emoji_is_whole():
    for text in ("\u26a0\ufe0fnote this", "note\ufe0f"):
        assert follows(text, "keywords:existence", {"keywords": ["note"]})


@pytest.mark.slow
def test_a_postscript_of_asterisks_takes_no_longer_than_its_length():
    with cpu_budget(1.0):
        follows(
            "P.S." + "*" * 200_000, "detectable_content:postscript", {"postscript_marker": "P.S."}
        )


def test_the_table_has_all_54_ids():
    assert set(CASES) == set(CHECKS) and len(CASES) == 54


@pytest.mark.parametrize("id", CASES)
def test_an_instruction_accepts_and_rejects(id):
    given_, accepted, rejected = CASES[id]
    for text in accepted:
        assert follows(text, id, given_), text
    for text in rejected:
        assert not follows(text, id, given_), text


@pytest.mark.parametrize("id", CASES)
def test_the_empty_and_an_unrelated_response_follow_nothing(id):
    for text in ("", " \n\t"):
        assert followed(text, [(id, CASES[id][0])], loose=True) == [False]
    assert follows(UNRELATED, id, CASES[id][0]) == (id in FINE_WITH_ANYTHING)


@given(st.text(max_size=60))
def test_any_text_is_judged_without_a_failure(text):
    for id, (given_, _, _) in CASES.items():
        assert follows(text, id, given_) in (True, False)


@pytest.mark.parametrize("id", [id for id, case in CASES.items() if case[0]])
def test_a_missing_argument_is_an_error_and_never_drawn_at_random(id):
    with pytest.raises(ValueError, match="arguments of instruction"):
        follows("text", id, {})
    with pytest.raises(ValueError, match="arguments of instruction"):
        follows("text", id, CASES[id][0] | {"no_such_argument": 1})


def test_arguments_of_none_are_not_given():
    assert follows("a b", "punctuation:no_comma", {"num_words": None, "relation": None})


def test_less_than_is_strict_and_at_least_is_not():
    for relation, expected in (
        ("less than", [True, False, False]),
        ("at least", [False, True, True]),
    ):
        kwargs = {"num_words": 2, "relation": relation}
        results = [
            follows(t, "length_constraints:number_words", kwargs) for t in ("a", "a b", "a b c")
        ]
        assert results == expected
    with pytest.raises(ValueError, match="must be 'less than' or 'at least'"):
        follows("a", "length_constraints:number_words", {"num_words": 2, "relation": "at most"})


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(KeyError, match="Did you mean 'punctuation:no_comma'"):
        follows("a", "punctuation:no_commas", {})


def test_one_id_may_occur_twice_with_other_arguments():
    instructions = [("keywords:existence", {"keywords": [word]}) for word in ("rain", "wind")]
    assert followed("rain", instructions) == [True, False]


def test_loose_forgives_a_first_or_last_line_and_asterisks():
    instructions = [
        ("startend:end_checker", {"end_phrase": "the end"}),
        ("punctuation:no_comma", {}),
    ]
    text = "Sure, here it is:\n**it rains. The end**\nBye"
    assert followed(text, instructions) == [False, False]
    assert followed(text, instructions, loose=True) == [True, True]
    assert len(variants(text)) == 8


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("<think>a</think>b", "b"),
        ("<think>a</think>\n<answer>b</answer>", "b"),
        ("<think>a</think>so <answer>b</answer>", "so <answer>b</answer>"),
        ("<think>a", ""),
        ("b", "b"),
    ],
)
def test_the_text_judged_is_what_follows_the_thinking(response, text):
    assert instructed_text(response) == text


def test_references_of_both_benchmarks_are_read():
    plain = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [None]}
    nested = [{"instruction_id": ["punctuation:no_comma"], "kwargs": [None]}]
    expected = [("punctuation:no_comma", {})]
    assert read_instructions(plain) == expected
    for truth in (nested, json.dumps(nested), str(nested)):
        assert read_instructions({"ground_truth": truth}) == expected
    quoted = [{"instruction_id": ["a", "b"], "kwargs": [None, {"end_phrase": "That's all"}]}]
    assert read_instructions({"ground_truth": json.dumps(quoted)}) == [
        ("a", {}), ("b", {"end_phrase": "That's all"}),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="needs as many kwargs"):
        read_instructions({"instruction_id_list": ["a", "b"], "kwargs": [{}]})


def test_the_score_is_the_share_or_all():
    reference = {
        "instruction_id_list": ["punctuation:no_comma", "detectable_format:title"],
        "kwargs": [{}, {}],
    }
    verifier = get("constraints")
    half = judge(verifier.problem(reference), "No title here")
    assert (half.score, half.detail) == (0.5, "not followed: detectable_format:title")
    assert half.components == {"instructions": 2.0, "share_followed": 0.5, "all_followed": 0.0}
    assert judge(verifier.problem(reference | {"scoring": "all"}), "No title here").score == 0.0
    assert judge(verifier.problem(reference | {"mode": "lax"}), "x").status == "error"


def test_sentences_end_where_a_reader_ends_them():
    text = 'Dr. A. Smith paid $3.50. "Why?" he said. It was late!\n\nA title\n\n他来了。好。'
    assert [len(words(sentence)) for sentence in sentences(text)][:1] == [5]
    assert sentences(text)[1:] == [
        '"Why?"',
        "he said.",
        "It was late!",
        "A title",
        "他来了。",
        "好。",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "junk", ["[" + "a" * 20_000, "<<" + "a" * 20_000, "*a" * 10_000, "a. " * 7_000]
)
def test_long_junk_is_judged_in_no_time(junk):
    with cpu_budget(3):
        for id, (given_, _, _) in CASES.items():
            follows(junk, id, given_)
