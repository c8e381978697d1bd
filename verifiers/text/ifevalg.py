"""The 29 instructions that open-instruct's IFEvalG adds (arXiv 2507.02833), with their ids.

The checks implement the wording of the instructions: a single word, punctuation alone, or a text
without anything to count does not follow an instruction.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from veriloop.verifiers.text.ifeval import letter_frequency, starts_with
from veriloop.verifiers.text.instruction_text import (
    closing_word,
    compared,
    divided_paragraphs,
    instruction,
    nonempty_parts,
    occurrences,
    opening_word,
    responses,
    same,
    sentences,
    words,
)

PALINDROME_WORDS = 12  # maximum of a phrase
PALINDROME_LETTERS = 3  # minimum of a single word


@instruction("copy:repeat_phrase")
def repeat_phrase(text: str, phrase: str, small_n: float) -> bool:
    """Exactly `small_n` variants of the phrase, each with one inner word replaced."""
    expected = [word.lower() for word in words(phrase)]
    size = len(expected)
    if size < 3:
        raise ValueError(f"phrase {phrase!r} must have a word between its first and its last")
    actual = [word.lower() for word in words(text)]
    windows = [actual[i : i + size] for i in range(len(actual) - size + 1)]
    changed = [
        sum(a != b for a, b in zip(window, expected, strict=True))
        for window in windows
        if (window[0], window[-1]) == (expected[0], expected[-1])
    ]
    near = [count for count in changed if count <= max(1, size // 2)]
    return len(near) == small_n and all(count == 1 for count in near)


@instruction("copy:copy")
@instruction("copy:copying_simple")
def copied(text: str, prompt_to_repeat: str) -> bool:
    return same(text, prompt_to_repeat)


@instruction("copy:copying_multiple")
def copying_multiple(text: str, prompt_to_repeat: str, N: float) -> bool:
    copies = responses(text)
    if copies is None or len(copies) != N:
        return False
    return all(same(part, prompt_to_repeat) for part in copies)


@instruction("new:copy_span_idx")
def copy_span_idx(text: str, prompt_to_repeat: str, n_start: float, n_end: float) -> bool:
    """Characters n_start to n_end; the last one is optional, as in the original check."""
    start, end = int(n_start), int(n_end)
    spans = (prompt_to_repeat[start : end + 1], prompt_to_repeat[start:end])
    return any(span.strip() and same(text, span) for span in spans)


@instruction("detectable_format:sentence_hyphens")
def sentence_hyphens(text: str) -> bool:
    """Two or more sentences, joined by a hyphen and nothing else."""
    bare = text.strip()
    joints = re.findall(r"[.!?]+(\s*-\s*|\s+)(?=\S)", bare)
    return bool(joints) and all(joint == "-" for joint in joints) and len(sentences(bare)) > 1


@instruction("detectable_format:square_brackets")
def square_brackets(text: str) -> bool:
    matches = [re.fullmatch(r"\[([^\[\]]+)\][.,!?;:]?", word) for word in text.split()]
    return all(match and any(map(str.isalnum, match.group(1))) for match in matches)


@instruction("detectable_format:bigram_wrapping")
def bigram_wrapping(text: str) -> bool:
    """Pairs of words in << >>; one word may be left over at the end."""
    pairs = r"(?:<<[^\s<>]+\s+[^\s<>]+>>[.,!?;:]*\s*)+"
    return re.fullmatch(rf"\s*{pairs}(?:<<[^\s<>]+>>|[^\s<>]+)?\s*", text) is not None


@instruction("keywords:no_adjacent_consecutive")
def no_adjacent_consecutive(text: str) -> bool:
    firsts = [word[0].lower() for word in words(text)]
    return len(firsts) > 1 and all(ord(b) - ord(a) != 1 for a, b in pairwise(firsts))


@instruction("keywords:word_once")
def word_once(text: str, keyword: str) -> bool:
    return occurrences(text, keyword) == 1


@instruction("keywords:word_count_different_numbers")
def word_count_different_numbers(
    text: str, keyword: str, frequency: float, relation: str | None = None
) -> bool:
    """The count compared by `relation`, or equal to `frequency` without a relation."""
    count = occurrences(text, keyword)
    return count == frequency if relation is None else compared(count, relation, frequency)


@instruction("keywords:exclude_word_harder")
def exclude_word_harder(text: str, keyword: str) -> bool:
    return not occurrences(text, keyword)


@instruction("keywords:palindrome")
def palindrome(text: str) -> bool:
    """A word or phrase of several letters that reads the same backwards."""
    folded = [word.casefold() for word in words(re.sub("['’-]", "", text))]
    for start in range(len(folded)):
        letters = ""
        for word in folded[start : start + PALINDROME_WORDS]:
            letters += word
            enough = len(letters) >= (PALINDROME_LETTERS if letters == word else 6)
            if enough and letters == letters[::-1] and len(set(letters)) > 1 and letters.isalpha():
                return True
    return False


@instruction("keywords:keyword_specific_position")
def keyword_specific_position(text: str, keyword: str | Sequence[str], n: float, m: float) -> bool:
    """The keyword is word m of sentence n, both counted from 1."""
    expected = keyword if isinstance(keyword, str) else keyword[0]
    if n < 1 or m < 1:
        raise ValueError(f"n and m count from 1, got {n} and {m}")
    in_order = sentences(text)
    inside = words(in_order[int(n) - 1]) if len(in_order) >= n else []
    return len(inside) >= m and same(inside[int(m) - 1], expected)


@instruction("keywords:start_end")
def start_end(text: str) -> bool:
    """The first word is also the last, and nothing follows it."""
    first, *rest = words(text) or [""]
    return bool(rest) and same(first, rest[-1]) and text.rstrip().endswith(rest[-1])


@instruction("paragraphs:paragraphs")
def paragraphs(text: str) -> bool:
    parts = divided_paragraphs(text)
    return parts is not None and len(parts) == 2


@instruction("paragraphs:paragraphs2")
def paragraphs2(text: str) -> bool:
    parts = nonempty_parts(re.split(r"\n\n", text.strip()))
    return parts is not None and len(parts) == 2


def _single_word(argument: str | Sequence[str]) -> str:
    word = (argument if isinstance(argument, str) else argument[0]).strip().lower()
    if not word:
        raise ValueError("the word must not be empty")
    return word


@instruction("first_word:first_word_sent")
def first_word_sent(text: str, first_word: str | Sequence[str]) -> bool:
    firsts = [opening_word(sentence) for sentence in sentences(text)]
    return bool(firsts) and set(firsts) == {_single_word(first_word)}


@instruction("first_word:first_word_answer")
def first_word_answer(text: str, first_word: str | Sequence[str]) -> bool:
    return starts_with(text, _single_word(first_word))


@instruction("last_word:last_word_sent")
def last_word_sent(text: str, last_word: str | Sequence[str]) -> bool:
    lasts = [closing_word(sentence) for sentence in sentences(text)]
    return bool(lasts) and set(lasts) == {_single_word(last_word)}


@instruction("last_word:last_word_answer")
def last_word_answer(text: str, last_word: str | Sequence[str]) -> bool:
    return closing_word(text) == _single_word(last_word)


@instruction("punctuation:punctuation_dot")
def punctuation_dot(text: str) -> bool:
    return not re.search("[.。…．]", text)


@instruction("punctuation:punctuation_exclamation")
def punctuation_exclamation(text: str) -> bool:
    return not re.search("[!！]", text)


@instruction("count:lowercase_counting")
def lowercase_counting(text: str, N: float) -> bool:
    return len(re.findall(r"\b[a-z]+\b", text)) <= N and bool(words(text))


@instruction("letters:letter_counting")
def letter_counting(text: str, N: float, relation: str) -> bool:
    return compared(sum(map(str.isalpha, text)), relation, N)


instruction("letters:letter_counting2")(letter_frequency)


@instruction("count:counting_composition")
def counting_composition(text: str, n_sent: float, n_words: float) -> bool:
    """Three paragraphs of `n_sent` sentences of `n_words` words each."""
    parts = divided_paragraphs(text)
    if parts is None or len(parts) != 3:
        return False
    by_part = [sentences(part) for part in parts]
    return all(len(inside) == n_sent for inside in by_part) and all(
        len(words(sentence)) == n_words for inside in by_part for sentence in inside
    )


@instruction("count:count_unique")
def count_unique(text: str) -> bool:
    folded = [word.casefold() for word in words(text)]
    return len(folded) > 1 and len(set(folded)) == len(folded)


@instruction("count:count_increment_word")
def count_increment_word(text: str, keyword1: str, keyword2: str) -> bool:
    return occurrences(text, keyword1) == 1 and occurrences(text, keyword2) == 2
