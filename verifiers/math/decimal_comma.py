"""Whether a response is written in a language whose decimal sign is the comma."""

import re

_WORDS = {
    "en": "the of and is to that we so for with are this which from by be it as there answer "
    "therefore then has have by on if get value thus",
    "de": "der die das ist und nicht ein eine wir also von den mit daher beträgt ergibt somit "
    "sind wert für antwort lautet gesuchte es auf",
    "fr": "le la les est et une un des donc nous vaut que pour dans du réponse égal égale sont "
    "ainsi par valeur cherchée",
    "es": "el la los las es y una un por lo tanto que del para en respuesta son igual entonces "
    "área valor resultado media",
    "it": "il lo la gli le è e una un di che quindi del per risposta sono uguale valore della",
    "pt": "o a os as é e uma um de que portanto do para resposta são igual valor em da resultado",
    "nl": "de het een is en van dus niet wij dat voor antwoord zijn waarde gelijk aan",
    "pl": "jest i w na z się że zatem odpowiedź wynosi wartość równa więc to",
    "cs": "je a v na se že tedy odpověď hodnota rovna",
    "sv": "är och en ett det som av svaret alltså för värdet blir",
    "da": "er og en et det som af svaret altså for værdien bliver",
    "no": "er og en et det som av svaret altså for verdien blir",
    "fi": "on ja se että siis vastaus arvo",
    "tr": "ve bir bu için cevap sonuç eşittir değer olur dir",
    "ro": "este și un o că deci răspunsul valoarea pentru",
    "hu": "a az és egy tehát válasz értéke",
    "ru": "и в на что равно ответ это равен равна следовательно значит получаем",
    "uk": "і в на що дорівнює відповідь це отже",
    "id": "adalah dan jadi jawaban nilai yang dari",
    "vi": "là và vậy đáp án bằng của",
}
_SETS = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_MATHS = re.compile(r"\\[A-Za-z]+|\$[^$]*\$|<[^>]*>")
_WORD = re.compile(r"[^\W\d_]+")
MAX_WORDS = 400  # of a response are looked at


def decimal_comma(text: str) -> bool:
    """Whether more of its words are known from such a language than from English."""
    words = [w.lower() for w in _WORD.findall(_MATHS.sub(" ", text[-8_000:]))[-MAX_WORDS:]]
    counts = {language: sum(word in known for word in words) for language, known in _SETS.items()}
    english = counts.pop("en")
    return max(counts.values()) > english
