"""The 25 instructions of IFEval (arXiv 2311.07911), with their ids and arguments.

Counting follows the original. These checks are stricter where the original accepts a response that
does not follow the instruction: an unreadable language, two options at once, or a repeated prompt
without an answer.
"""

import re
from collections.abc import Sequence

from veriloop.verifiers.json_answer import strict_loads
from veriloop.verifiers.text.instruction_text import (
    compared,
    divided_paragraphs,
    folded,
    has_content,
    instruction,
    occurrences,
    opening_word,
    responses,
    same_words,
    sentences,
    words,
)
from veriloop.verifiers.text.word_language import identify, is_supported

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@instruction("keywords:existence")
def existence(text: str, keywords: Sequence[str]) -> bool:
    _check_words(keywords)
    return all(occurrences(text, keyword) for keyword in keywords)


@instruction("keywords:frequency")
def frequency(text: str, keyword: str, frequency: float, relation: str) -> bool:
    return compared(occurrences(text, keyword), relation, frequency)


@instruction("keywords:forbidden_words")
def forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    _check_words(forbidden_words)
    return not any(occurrences(text, word) for word in forbidden_words)


def _check_words(keywords: Sequence[str]) -> None:
    if isinstance(keywords, str) or not keywords or not all(word.strip() for word in keywords):
        raise ValueError(f"must be a list of words, got {keywords!r}")


@instruction("keywords:letter_frequency")
def letter_frequency(text: str, letter: str, let_frequency: float, let_relation: str) -> bool:
    if len(letter.strip()) != 1:
        raise ValueError(f"letter must be one character, got {letter!r}")
    return compared(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


@instruction("language:response_language")
def response_language(text: str, language: str) -> bool:
    wanted = language.lower().partition("-")[0]
    if not is_supported(wanted):
        raise ValueError(f"language {language!r} cannot be identified; see `word_language`")
    return identify(text) == wanted


@instruction("length_constraints:number_sentences")
def number_sentences(text: str, num_sentences: float, relation: str) -> bool:
    return compared(len(sentences(text)), relation, num_sentences)


@instruction("length_constraints:number_paragraphs")
def number_paragraphs(text: str, num_paragraphs: float) -> bool:
    paragraphs = divided_paragraphs(text)
    return paragraphs is not None and len(paragraphs) == num_paragraphs


@instruction("length_constraints:number_words")
def number_words(text: str, num_words: float, relation: str) -> bool:
    return compared(len(words(text)), relation, num_words)


@instruction("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(
    text: str, num_paragraphs: float, nth_paragraph: float, first_word: str
) -> bool:
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    if not 1 <= nth_paragraph <= num_paragraphs:
        raise ValueError(f"nth_paragraph must lie in 1..{num_paragraphs}, got {nth_paragraph}")
    if len(paragraphs) != num_paragraphs:
        return False
    return starts_with(paragraphs[int(nth_paragraph) - 1], first_word)


def starts_with(text: str, word: str) -> bool:
    return opening_word(text) == word.strip().lower()


def _filled(pattern: str, text: str) -> int:
    """The number of matches with content."""
    return sum(map(has_content, re.findall(pattern, text)))


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
    after = r"[*_)\]\s]*+[^\s.*_)\]]"  # text, which Markdown may set off
    return re.search(rf"(?<![^\W_])(?<!\.){spelled}{after}", text, re.IGNORECASE) is not None


@instruction("detectable_format:number_bullet_lists")
def number_bullet_lists(text: str, num_bullets: float) -> bool:
    lines = re.findall(r"^[ \t]*(?:\*(?!\*)|-(?!-))(.*)", text, re.MULTILINE)
    return sum(map(has_content, lines)) == num_bullets


@instruction("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    return sum(option.lower() in text.lower() for option in OPTIONS) == 1


@instruction("detectable_format:number_highlighted_sections")
def number_highlighted_sections(text: str, num_highlights: float) -> bool:
    spans = re.findall(r"\*\*[^\n*]+\*\*|\*[^\n*]+\*", text)
    return sum(map(has_content, spans)) >= num_highlights


@instruction("detectable_format:multiple_sections")
def multiple_sections(text: str, section_spliter: str, num_sections: float) -> bool:
    numbers = re.findall(rf"(?<!\w){re.escape(section_spliter.strip())}\s?(\d+)", text)
    return len(set(numbers)) >= num_sections


@instruction("detectable_format:json_format")
def json_format(text: str) -> bool:
    fenced = re.fullmatch(r"\s*```(?:json)?\s*\n?(.*?)```\s*", text, re.DOTALL | re.IGNORECASE)
    try:
        value = strict_loads(fenced.group(1) if fenced else text)
    except ValueError:
        return False
    return isinstance(value, dict | list)


@instruction("detectable_format:title")
def title(text: str) -> bool:
    return _filled(r"<<([^\n<>]*)>>", text) > 0


@instruction("combination:two_responses")
def two_responses(text: str) -> bool:
    parts = responses(text)
    return parts is not None and len(parts) == 2 and not same_words(*parts)


@instruction("combination:repeat_prompt")
def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    repeated = prompt_to_repeat.strip().casefold()
    if not repeated:
        raise ValueError("prompt_to_repeat must not be empty")
    response = text.strip().casefold()
    return response.startswith(repeated) and bool(words(response[len(repeated) :]))


@instruction("startend:end_checker")
def end_checker(text: str, end_phrase: str) -> bool:
    if not end_phrase.strip():
        raise ValueError("end_phrase must not be empty")
    end, phrase = folded(text.strip().strip('"')), folded(end_phrase.strip())
    before = end.removesuffix(phrase)
    inside_word = before[-1:].isalnum() and phrase[0].isalnum() and phrase[0].isascii()
    return end.endswith(phrase) and not inside_word


@instruction("startend:quotation")
def quotation(text: str) -> bool:
    """One pair of quotation marks around everything; quotations inside it are allowed."""
    bare = text.strip()
    if len(bare) < 3 or not bare[0] == bare[-1] == '"' or not words(bare):
        return False
    inside = bare[1:-1]
    first, last = inside.find('"'), inside.rfind('"')
    if first < 0:
        return True
    opens = (
        not (first and inside[first - 1].isalnum()) and not inside[first + 1 : first + 2].isspace()
    )
    closes = not inside[last - 1].isspace() and not inside[last + 1 : last + 2].isalnum()
    return first < last and opens and closes


@instruction("change_case:capital_word_frequency")
def capital_word_frequency(text: str, capital_frequency: float, capital_relation: str) -> bool:
    capitals = [word for word in words(text) if word.isupper()]
    return compared(len(capitals), capital_relation, capital_frequency)


@instruction("change_case:english_capital")
def english_capital(text: str) -> bool:
    return text.isupper() and identify(text) == "en"


@instruction("change_case:english_lowercase")
def english_lowercase(text: str) -> bool:
    return text.islower() and identify(text) == "en"


@instruction("punctuation:no_comma")
def no_comma(text: str) -> bool:
    return not re.search("[,，、]", text)
