"""Names of languages, and which of them have functions to call."""

import pytest

from veriloop.sandbox.languages.table import LANGUAGES, named


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("c", "c"), ("C++", "cpp"), ("cc", "cpp"), ("js", "javascript"), ("Node", "javascript"),
        ("sh", "bash"), ("SQLite", "sql"), ("py", "python"), ("python", "python"),
    ],
)  # fmt: skip
def test_a_language_has_many_names(alias, name):
    assert named(alias) is LANGUAGES[name]


def test_no_two_languages_share_a_name():
    names = [alias for language in LANGUAGES.values() for alias in language.aliases]
    assert len(names) == len(set(names)) and all(name == name.lower() for name in names)
    assert all(name in language.aliases for name, language in LANGUAGES.items())


def test_an_unknown_language_names_the_nearest_and_all_there_are():
    known = "python, c, cpp, javascript, bash, sql"
    with pytest.raises(ValueError, match=rf"'javascrpt'. Did you mean 'javascript'\? .*{known}"):
        named("javascrpt")
    with pytest.raises(ValueError, match=f"no language 'cobol'. Known: {known}"):
        named("cobol")


def test_only_some_languages_have_functions():
    for name in ("python", "javascript"):
        LANGUAGES[name].check_call("anything")
    LANGUAGES["sql"].check_call("rows")
    with pytest.raises(ValueError, match=r"'f' of a SQL program. Known: rows, table"):
        LANGUAGES["sql"].check_call("f")
    for name in ("c", "cpp", "bash"):
        with pytest.raises(ValueError, match="reads standard input, it cannot be called"):
            LANGUAGES[name].check_call("main")


def test_what_starts_processes_needs_a_cgroup():
    needing = {name for name, language in LANGUAGES.items() if language.needs_cgroup}
    assert needing == {"c", "cpp", "bash"}
    assert all(LANGUAGES[name].counted == "group" for name in needing)
