"""The 29 instructions that open-instruct's IFEvalG adds (arXiv 2507.02833), under their ids.

They follow what the instruction asks in words: a check that passes on one word, on punctuation, or
on a text without any of the things it counts is none.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from verifiers.ifeval import letter_frequency, starts_with
from verifiers.instruction_text import (
    compared,
    contains_word,
    divided,
    instruction,
    last_word,
    occurrences,
    same,
    sentences,
    solid,
    words,
)

PALINDROME_WORDS = 12  # of a phrase, at most
PALINDROME_LETTERS = 3  # of a word or phrase, at least


@instruction("copy:repeat_phrase")
def repeat_phrase(text: str, phrase: str, small_n: float) -> bool:
    """Exactly `small_n` variants of the phrase, each with one inner word replaced."""
    wanted = [word.lower() for word in words(phrase)]
    if len(wanted) < 3:
        raise ValueError(f"phrase {phrase!r} must have a word between its first and its last")
    written = [word.lower() for word in words(text)]
    windows = [written[i : i + len(wanted)] for i in range(len(written) - len(wanted) + 1)]
    changed = [
        sum(a != b for a, b in zip(window, wanted, strict=True))
        for window in windows
        if (window[0], window[-1]) == (wanted[0], wanted[-1])
    ]
    near = [count for count in changed if count <= max(1, len(wanted) // 2)]
    return len(near) == small_n and all(count == 1 for count in near)


@instruction("copy:copy")
@instruction("copy:copying_simple")
def copied(text: str, prompt_to_repeat: str) -> bool:
    return same(text, prompt_to_repeat)


@instruction("copy:copying_multiple")
def copying_multiple(text: str, prompt_to_repeat: str, N: float) -> bool:
    found = solid(text.split("******"))
    return found is not None and len(found) == N and all(same(f, prompt_to_repeat) for f in found)


@instruction("new:copy_span_idx")
def copy_span_idx(text: str, prompt_to_repeat: str, n_start: float, n_end: float) -> bool:
    """Characters n_start to n_end; the last one may be left out, as in the original check."""
    start, end = int(n_start), int(n_end)
    spans = (prompt_to_repeat[start : end + 1], prompt_to_repeat[start:end])
    return any(span.strip() and same(text, span) for span in spans)


@instruction("detectable_format:sentence_hyphens")
def sentence_hyphens(text: str) -> bool:
    """Two sentences or more, every two joined by a hyphen and nothing else."""
    bare = text.strip()
    joints = re.findall(r"[.!?]+(\s*-\s*|\s+)(?=\S)", bare)
    return bool(joints) and all(joint == "-" for joint in joints) and len(sentences(bare)) > 1


@instruction("detectable_format:square_brackets")
def square_brackets(text: str) -> bool:
    found = [re.fullmatch(r"\[([^\[\]]+)\][.,!?;:]?", word) for word in text.split()]
    return all(match and any(map(str.isalnum, match.group(1))) for match in found)


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
    """By `relation` where one is given, else exactly `frequency` times."""
    found = occurrences(text, keyword)
    return found == frequency if relation is None else compared(found, relation, frequency)


@instruction("keywords:exclude_word_harder")
def exclude_word_harder(text: str, keyword: str) -> bool:
    if not keyword.strip():
        raise ValueError("keyword must not be empty")
    return not contains_word(text, keyword)


@instruction("keywords:palindrome")
def palindrome(text: str) -> bool:
    """A word or phrase of several letters that reads the same backwards."""
    found = [word.casefold() for word in words(re.sub("['’-]", "", text))]
    for start in range(len(found)):
        letters = ""
        for word in found[start : start + PALINDROME_WORDS]:
            letters += word
            enough = len(letters) >= (PALINDROME_LETTERS if letters == word else 6)
            if enough and letters == letters[::-1] and len(set(letters)) > 1 and letters.isalpha():
                return True
    return False


@instruction("keywords:keyword_specific_position")
def keyword_specific_position(text: str, keyword: str | Sequence[str], n: float, m: float) -> bool:
    """The keyword is word m of sentence n, both counted from 1."""
    wanted = keyword if isinstance(keyword, str) else keyword[0]
    if n < 1 or m < 1:
        raise ValueError(f"n and m count from 1, got {n} and {m}")
    found = sentences(text)
    inside = words(found[int(n) - 1]) if len(found) >= n else []
    return len(inside) >= m and same(inside[int(m) - 1], wanted)


@instruction("keywords:start_end")
def start_end(text: str) -> bool:
    """The first word is also the last, and nothing follows it."""
    found = words(text)
    return len(found) > 1 and same(found[0], found[-1]) and text.rstrip().endswith(found[-1])


@instruction("paragraphs:paragraphs")
def paragraphs(text: str) -> bool:
    found = divided(text)
    return found is not None and len(found) == 2


@instruction("paragraphs:paragraphs2")
def paragraphs2(text: str) -> bool:
    found = solid(re.split(r"\n\n", text.strip()))
    return found is not None and len(found) == 2


def _one(word: str | Sequence[str]) -> str:
    found = (word if isinstance(word, str) else word[0]).strip().lower()
    if not found:
        raise ValueError("the word must not be empty")
    return found


@instruction("first_word:first_word_sent")
def first_word_sent(text: str, first_word: str | Sequence[str]) -> bool:
    found = sentences(text)
    return bool(found) and all(starts_with(sentence, _one(first_word)) for sentence in found)


@instruction("first_word:first_word_answer")
def first_word_answer(text: str, first_word: str | Sequence[str]) -> bool:
    return starts_with(text, _one(first_word))


@instruction("last_word:last_word_sent")
def last_word_sent(text: str, last_word: str | Sequence[str]) -> bool:
    found = sentences(text)
    return bool(found) and all(_ends_with(sentence, _one(last_word)) for sentence in found)


@instruction("last_word:last_word_answer")
def last_word_answer(text: str, last_word: str | Sequence[str]) -> bool:
    return _ends_with(text, _one(last_word))


def _ends_with(text: str, word: str) -> bool:
    return last_word(text) == word


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
    found = divided(text)
    if found is None or len(found) != 3:
        return False
    inside = [sentences(paragraph) for paragraph in found]
    return all(len(said) == n_sent for said in inside) and all(
        len(words(sentence)) == n_words for said in inside for sentence in said
    )


@instruction("count:count_unique")
def count_unique(text: str) -> bool:
    found = [word.casefold() for word in words(text)]
    return len(found) > 1 and len(set(found)) == len(found)


@instruction("count:count_increment_word")
def count_increment_word(text: str, keyword1: str, keyword2: str) -> bool:
    return occurrences(text, keyword1) == 1 and occurrences(text, keyword2) == 2
