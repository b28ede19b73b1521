"""What counts as a fact: words that natural language does not have, in any language, and never a credential."""

from random import Random

import pytest

import contextc as cc
from contextc.compiler.facts_in_texts import find_facts, list_facts, list_facts_in_words, list_words, rank_facts


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("The deploy of ORD-5512 failed.", ["ORD-5512"]),
        ("See src/pay/api.py, /etc/hosts and C:\\temp\\a.txt!", ["src/pay/api.py", "/etc/hosts", "C:\\temp\\a.txt"]),
        ("It is at https://example.org/a?b=1.", ["https://example.org/a?b=1"]),
        ("Port 8443, version v2.3.1, commit deadbeef01", ["8443", "v2.3.1", "deadbeef01"]),
        ("after 30 s it cost $4,500.50 or 12%", ["30 s", "$4,500.50", "12%"]),
        ("call parseRequest or max_size in app.config", ["parseRequest", "max_size", "app.config"]),
        ("端口是8443。请看 config.yaml", ["8443", "config.yaml"]),
        ("KeyError: no such 'x'\nnext", ["KeyError: no such 'x'", "KeyError"]),
        ("He or she and/or it. That is all; e.g. nothing, at 12 or 5.", []),
        ("Über den Wolken muss die Freiheit grenzenlos sein.", []),
    ],
)
def test_facts_are_found_in_text(text: str, facts: list[str]) -> None:
    assert find_facts(text) == facts


@pytest.mark.parametrize(
    "text",
    [
        "password: hunter22secret",
        '{"api_key" : "Zx81abcd"}',
        "Authorization: Bearer abcd1234efgh5678ijkl",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "postgres://user:hunter2@db.example.org/x",
        "sk-proj-abcdefgh12345678",
    ],
)
def test_what_looks_like_a_credential_is_not_a_fact(text: str) -> None:
    """An index and a receipt are shown and stored in more places than the message."""
    found = find_facts(f"Use {text} for ORD-1")
    assert found == ["ORD-1"] or all(fact in ("ORD-1", "api_key") for fact in found)


class _EqualHash(str):
    def __hash__(self) -> int:
        return 1


def test_facts_of_another_text_never_appear() -> None:
    """What was found in a long text is kept by a digest of it: two texts with one hash have facts of their own."""
    found = [find_facts(_EqualHash(f"{name} was shipped. {'So it is. ' * 40}")) for name in ("ORD-5512", "ORD-7731")]
    assert found == [["ORD-5512"], ["ORD-7731"]]


def shown(*messages: cc.Message, most: int = 12) -> list[str]:
    """Return the facts of messages as an index shows them, the most useful first."""
    return [fact.shown for fact in rank_facts(enumerate(messages, 1), most)]


def test_facts_of_a_message_include_arguments_and_results() -> None:
    call = cc.tool_call("1", "read", {"path": "notes of may", "n": [3]})
    assert shown(cc.assistant("Reading it_now.", tool_calls=[call])) == ["notes of may", "it_now"]
    assert shown(cc.tool_result("1", "read", "total 941 EUR")) == ["total 941 EUR"]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("It is listening on port 8443.", ["port 8443"]),
        ('{"port": 8443, "size": 1200}', ["port: 8443", "size: 1200"]),
        ("всего 385.5 ГБ, потом", ["всего 385.5 ГБ"]),
        ("网关合计385.5万元。", ["合计385.5万元"]),
        ("Summe 4.010,17 Euro", ["Summe 4.010,17 Euro"]),
        ("the share was 81.25 %", ["was 81.25 %"]),
        ("E50521: lost the newt b37f. Next", ["E50521: lost the newt b37f"]),
        ("Fehler 9928: Datei nicht gefunden.", ["Fehler 9928: Datei nicht gefunden"]),
        ("Ошибка: файл не найден", ["Ошибка: файл не найден"]),
        ("网关错误\uff1a文件不存在。继续", ["错误\uff1a文件不存在"]),
        ("it is owned by Greta Novak-Okafor today", ["Greta Novak-Okafor"]),
        ("firmado el 16 de enero de 2026 en Soria", ["16 de enero de 2026"]),
        ("until 3 March 2026, or April 12, 2027.", ["April 12, 2027", "3 March 2026"]),
        ("am 3. Mai 2026, до 7 марта 2026", ["7 марта 2026", "3. Mai 2026"]),
        ("pay to ES84 4980 4800 today", ["ES84 4980 4800"]),
        ("| 4452 | 7 | 1290 |", ["1290", "4452"]),
    ],
)
def test_a_figure_is_shown_with_what_it_is(text: str, entries: list[str]) -> None:
    """In any script: the word before it, its unit, and more groups of digits. Error texts are shown to the end of the
    sentence, dates with their month in words.
    """
    assert sorted(shown(cc.tool_result("1", "read", text))) == sorted(entries)


def test_facts_that_look_alike_in_many_messages_rank_last() -> None:
    """Times in a log, rows of a table and numbered files say little; a value that has no like is worth more."""
    lines = [f"2026-11-18T05:{minute:02}:11Z id={minute:04x}a1b2c3 took 3{minute:02} ms" for minute in range(40)]
    results = [
        cc.tool_result(str(at), "log", "\n".join([*lines[at : at + 8], *["lost ORD-5512"] * (at == 3)]))
        for at in range(30)
    ]
    calls = [cc.assistant(tool_calls=[cc.tool_call(str(at), "log", {"of": f"unit-{at}"})]) for at in range(30)]
    assert shown(*[each for pair in zip(calls, results, strict=True) for each in pair])[0] == "ORD-5512"


def test_one_long_listing_does_not_displace_other_messages() -> None:
    """The first fact of each message ranks before the tenth of another."""
    listing = cc.tool_result(
        "9", "list", "\n".join([f"/srv/{name}/data/{name}.bin" for name in "abcdefghijklmnopqrstuvwxyz"])
    )
    others = [cc.tool_result(str(at), "read", f"see {'xyzuvw'[at] * 3}-{at}4512") for at in range(6)]
    ranked = shown(*others, listing, most=20)
    assert {entry for entry in ranked[:8] if entry.endswith("4512")} == {
        f"{'xyzuvw'[at] * 3}-{at}4512" for at in range(6)
    }


def test_what_the_model_took_up_ranks_first_then_what_is_recent() -> None:
    seen = cc.tool_result("1", "read", "ABC-1234 DEF-5678")
    used = cc.assistant("It is DEF-5678.")
    later = cc.tool_result("2", "read", "GHI-9012")
    assert shown(seen, used, later) == ["DEF-5678", "GHI-9012", "ABC-1234"]


@pytest.mark.parametrize("text", ["Error: login with password: hunter22secret failed", "port 8443 token: abc12345xyz"])
def test_no_entry_has_a_credential_beside_its_fact(text: str) -> None:
    """The words around a figure and the text of an error may contain one."""
    entries = "; ".join(shown(cc.tool_result("1", "read", text)))
    assert "hunter22" not in entries
    assert "abc12345" not in entries


def test_mentions_in_a_text_are_found_again_if_it_has_changed() -> None:
    """Mentions in long texts are remembered; a redacted message has none of them."""
    long = "word " * 100
    for name in ("ORD-5512", "ORD-5512", "ORD-5513"):
        assert shown(cc.tool_result("1", "read", f"{long} {name}")) == [name]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_words_have_the_same_facts_beside_a_sign_beyond_ascii(seed: int) -> None:
    """Guarantee 7.9: words are found in another way in texts that have only ASCII."""
    dice = Random(seed)
    pieces = ("It is", "Ada Marlow", "ORD-5512", "port 8443", "E12: lost it", "a/b.py,", "key=abcd1234", "3 May 2026")
    signs = (" ", "\n", "\t", "\0", "; ", "'", '"', " (", ")", ": ", " = ", "\r\n", "", "\x1f", "|", "!")
    text = "".join([each for _ in range(30) for each in (dice.choice(pieces), dice.choice(signs))])
    assert shown(cc.user(text), most=99) == shown(cc.user(f"{text}\n…"), most=99) != []


@pytest.mark.parametrize("end", ["", "\n…", " 端口是8443。"])
@pytest.mark.parametrize("seed", range(10))
def test_the_words_of_texts_have_all_facts_without_blanks(seed: int, end: str) -> None:
    """Guarantee 7.9: an index names nothing that stays in the request, and finds that without a look at each fact."""
    dice = Random(seed)
    pieces = (
        "It is",
        "ORD-5512",
        "port 8443",
        "a/b.py,x_y",
        "(1,000.5)",
        "max_size.",
        "12%",
        '"id":"A1B2",',
        "naïve_a",
    )
    texts = [" ".join(dice.choices(pieces, k=9)) + end for _ in range(5)]
    found = {fact for fact in list_facts(texts) if " " not in fact}
    assert found
    assert found <= list_facts_in_words(list_words(texts))


def test_each_fact_has_the_number_of_the_last_text_with_it() -> None:
    texts = ["ORD-5512 took 30 s", "", "see ORD-5512, on 3 May 2026", "TypeError: no int"]
    expected = {"ORD-5512": 2, "30 s": 0, "3 May 2026": 2, "2026": 2, "TypeError": 3, "TypeError: no int": 3}
    assert list_facts(texts) == expected


def test_what_last_had_the_name_of_a_credential_is_no_fact() -> None:
    assert list_facts(["PRJ-4512 is open", "key: PRJ-4512"]) == {}
    assert list_facts(["key: PRJ-4512", "PRJ-4512 is open"]) == {"PRJ-4512": 1}
