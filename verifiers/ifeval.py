"""The 25 instructions of IFEval (arXiv 2311.07911), under their ids and arguments.

Counting follows the original; where its check can be passed by not doing what is asked (an
unreadable language, two options at once, a prompt repeated without an answer) ours cannot.
"""

import json
import re
from collections.abc import Sequence

from verifiers.instruction_text import (
    compared,
    contains_word,
    divided,
    first_word,
    instruction,
    occurrences,
    same,
    sentences,
    solid,
    words,
)
from verifiers.tongues import identified

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@instruction("keywords:existence")
def existence(text: str, keywords: Sequence[str]) -> bool:
    return _some(keywords) and all(occurrences(text, keyword) for keyword in keywords)


@instruction("keywords:frequency")
def frequency(text: str, keyword: str, frequency: float, relation: str) -> bool:
    return compared(occurrences(text, keyword), relation, frequency)


@instruction("keywords:forbidden_words")
def forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return _some(forbidden_words) and not any(contains_word(text, one) for one in forbidden_words)


def _some(listed: Sequence[str]) -> bool:
    if isinstance(listed, str) or not listed or not all(one.strip() for one in listed):
        raise ValueError(f"must be a list of words, got {listed!r}")
    return True


@instruction("keywords:letter_frequency")
def letter_frequency(text: str, letter: str, let_frequency: float, let_relation: str) -> bool:
    if len(letter.strip()) != 1:
        raise ValueError(f"letter must be one character, got {letter!r}")
    return compared(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


@instruction("language:response_language")
def response_language(text: str, language: str) -> bool:
    return identified(text) == language.lower().partition("-")[0]


@instruction("length_constraints:number_sentences")
def number_sentences(text: str, num_sentences: float, relation: str) -> bool:
    return compared(len(sentences(text)), relation, num_sentences)


@instruction("length_constraints:number_paragraphs")
def number_paragraphs(text: str, num_paragraphs: float) -> bool:
    found = divided(text)
    return found is not None and len(found) == num_paragraphs


@instruction("length_constraints:number_words")
def number_words(text: str, num_words: float, relation: str) -> bool:
    return compared(len(words(text)), relation, num_words)


@instruction("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(
    text: str, num_paragraphs: float, nth_paragraph: float, first_word: str
) -> bool:
    found = [part for part in text.split("\n\n") if part.strip()]
    if not 1 <= nth_paragraph <= num_paragraphs:
        raise ValueError(f"nth_paragraph must lie in 1..{num_paragraphs}, got {nth_paragraph}")
    return len(found) == num_paragraphs and starts_with(found[int(nth_paragraph) - 1], first_word)


def starts_with(text: str, word: str) -> bool:
    return first_word(text) == word.strip().lower()


def _filled(pattern: str, text: str) -> int:
    """How many matches hold a letter or a digit."""
    return sum(any(map(str.isalnum, inside)) for inside in re.findall(pattern, text))


@instruction("detectable_content:number_placeholders")
def number_placeholders(text: str, num_placeholders: float) -> bool:
    return _filled(r"\[([^\[\]\n]*)\]", text) >= num_placeholders


@instruction("detectable_content:postscript")
def postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    if re.fullmatch(r"(?:[A-Za-z]\.\s?)+[A-Za-z]?", marker):  # P.S., P.P.S, spaced or not
        spelled = r"\.\s?".join(re.findall("[A-Za-z]", marker)) + r"\b\.?"
    else:
        spelled = re.escape(marker)
    return re.search(rf"(?:^|\s){spelled}\s*[^\s.]", text, re.IGNORECASE) is not None


@instruction("detectable_format:number_bullet_lists")
def number_bullet_lists(text: str, num_bullets: float) -> bool:
    return len(re.findall(r"^[ \t]*(?:\*(?!\*)|-(?!-))[ \t]*\S", text, re.MULTILINE)) == num_bullets


@instruction("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    return sum(option.lower() in text.lower() for option in OPTIONS) == 1


@instruction("detectable_format:number_highlighted_sections")
def number_highlighted_sections(text: str, num_highlights: float) -> bool:
    spans = re.findall(r"\*\*[^\n*]+\*\*|\*[^\n*]+\*", text)
    return sum(1 for span in spans if span.strip("*").strip()) >= num_highlights


@instruction("detectable_format:multiple_sections")
def multiple_sections(text: str, section_spliter: str, num_sections: float) -> bool:
    found = re.findall(rf"(?<!\w){re.escape(section_spliter.strip())}\s?(\d+)", text)
    return len(set(found)) >= num_sections


@instruction("detectable_format:json_format")
def json_format(text: str) -> bool:
    fenced = re.fullmatch(r"\s*```(?:json)?\s*\n?(.*?)```\s*", text, re.DOTALL | re.IGNORECASE)
    try:
        value = json.loads(fenced.group(1) if fenced else text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict | list)


@instruction("detectable_format:title")
def title(text: str) -> bool:
    return _filled(r"<<([^\n<>]*)>>", text) > 0


@instruction("combination:two_responses")
def two_responses(text: str) -> bool:
    found = solid(text.split("******"))
    return found is not None and len(found) == 2 and not same(*found)


@instruction("combination:repeat_prompt")
def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    repeated = prompt_to_repeat.strip().casefold()
    if not repeated:
        raise ValueError("prompt_to_repeat must not be empty")
    written = text.strip().casefold()
    return written.startswith(repeated) and bool(words(written[len(repeated) :]))


@instruction("startend:end_checker")
def end_checker(text: str, end_phrase: str) -> bool:
    if not end_phrase.strip():
        raise ValueError("end_phrase must not be empty")
    return text.strip().strip('"').casefold().endswith(end_phrase.strip().casefold())


@instruction("startend:quotation")
def quotation(text: str) -> bool:
    bare = text.strip()
    return len(bare) > 2 and bare[0] == bare[-1] == '"' and bool(words(bare))


@instruction("change_case:capital_word_frequency")
def capital_word_frequency(text: str, capital_frequency: float, capital_relation: str) -> bool:
    capitals = [word for word in words(text) if word.isupper()]
    return compared(len(capitals), capital_relation, capital_frequency)


@instruction("change_case:english_capital")
def english_capital(text: str) -> bool:
    return text.isupper() and identified(text) == "en"


@instruction("change_case:english_lowercase")
def english_lowercase(text: str) -> bool:
    return text.islower() and identified(text) == "en"


@instruction("punctuation:no_comma")
def no_comma(text: str) -> bool:
    return not re.search("[,，、]", text)
