"""Rendering of Markdown and code: the same for streamed and stored text, and fast for any input.

What a model writes may be meant to make the page stand still. So the inputs here are such that a reader that takes
quadratic time would need minutes: the page has to come back within `PATIENT`, which is far more than it takes.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, cast

import pytest
from playwright.sync_api import Page, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.conftest import PagePool
from tests.browser.page_driver import Person
from tests.browser.scripted_model import SPEC, Model
from tests.browser.server import served
from tests.conftest import THOROUGH, some

PATIENT = 60_000
CODE = 60_000
"""As much as is coloured."""
LINE = 5_000
"""As much as is coloured of one line."""
GAP = 63
"""So much space in a line is coloured."""
WORDS = 20_000
"""As much as is looked through for emphasis and links, in a paragraph."""

SHOWN = """async ([text, step]) => {
  const [{html, render}, {Markdown}] = await Promise.all([import("/app/html.js"), import("/app/markdown.js")]);
  const box = document.createElement("div");
  for (let at = step; at < text.length + step; at += step) render(html`<${Markdown} text=${text.slice(0, at)} />`, box);
  return box.innerHTML;
}"""
SELECTED = """async (text) => {
  const [{html, render}, {Code}] = await Promise.all([import("/app/html.js"), import("/app/code_block.js")]);
  const box = document.body.appendChild(document.createElement("div"));
  render(html`<${Code} text=${text} language="python" />`, box);
  getSelection().selectAllChildren(box.querySelector("code"));
  const found = [getSelection().toString(), box.querySelectorAll(".t-call").length];
  box.remove();
  return found;
}"""
TOKENS = """async ([text, language]) => {
  const {startState, highlight} = await import("/app/highlight.js");
  return highlight(text, startState(language));
}"""
# With a module of its own: the time that hostile texts take is not taken from the other tests of the page.
BEGIN = """([texts, reader]) => {
  window.finished = null;
  setTimeout(async () => {
    const [code, markdown] = await Promise.all(
      ["highlight.js?own", "markdown.js"].map((name) => import(`/app/${name}`)));
    const read = {
      blocks: (text) => markdown.parseBlocks(null, text).blocks,
      inline: (text) => markdown.renderInline(text),
    }[reader] ?? ((text) => code.highlight(text, code.startState(reader)));
    const made = (text) => text.map(([unit, size]) => unit.repeat(size / unit.length + 1).slice(0, size)).join("");
    window.finished = texts.map((text) => read(typeof text === "string" ? text : made(text)).length);
  });
}"""
FINISHED = "() => window.finished"
DEEPEST = """() => Math.max(...[...document.querySelectorAll(".prose *")].map((each) => {
  let depth = 0;
  for (let at = each; !at.matches(".prose"); at = at.parentElement) depth += 1;
  return depth;
}))"""

LANGUAGES = [
    *("python", "javascript", "json", "bash", "html", "css", "sql", "toml", "yaml", "diff"),
    *("c", "go", "java", "ruby", "rust"),
]
REPEATED = (
    *"a1_$-./\\\"'`#@&|;:=<>()[]{}!*~ \t\n\u2028", "a-", "a$", "a ", "a:", "a\n", "[\u2028", "1e", "- ", " \n",
    '"""', "'''a", "/*",
    "<!--", "${", "`${", "$( ", "=/[", "=/[=/]", "= /", "(/a", '"\\', '"a" ', "def ", "class ", "select ",
    "color blue ", "[[",
    "\n ", "\n[", "\n- ", "a.b ", "--a", "#abc-", ".a ", "| ", "@a.", "&a",
)  # fmt: skip
STARTS = ("def", "=", "$(", "|", "-", '"a"', "a", "@font-face{src:url(data:", "[", "- -")
LINES = {
    "a heading with a gap": "# a" + " \t" * 200_000 + "b",
    "a heading of hashes": "# " + "# " * 200_000 + "x",
    "a fence with a gap": "```" + " " * 400_000 + "`",
    "a fence of many marks": "`" * 400_000 + "\na",
    "a rule that is none": "* " * 200_000 + "x",
    "a divider with a gap": "a|b\n-|-" + " " * 400_000 + "x",
    "an item with a gap": "- " + " " * 400_000 + "\u2028",
    "an underline that is none": "a\n" + "=" * 400_000 + "x",
    "a table of many columns": "a|" * 10_000 + "\n" + "-|" * 10_000 + "\n" + "|\n" * 20_000,
    "a table of many rows": "a|" * 200 + "\n" + "-|" * 200 + "\n" + "|\n" * 200_000,
    "quotes in quotes": "> " * 200_000,
    "items in items": "- " * 200_000,
    "ever deeper": "\n".join(" " * depth + "- a" for depth in range(900)),
    "empty lines": "- a\n" + "\n" * 400_000 + "x",
    "pipes": "|" + "\\|" * 200_000 + "\n|-|",
}
PAIRS = (
    ("[", "]"), ("*a ", " b*"), ("**", "**"), ("*a **b ", "c** d* "), ("[", "](http://a)"), ("[*a*", "](x)"),
    ("[**a ", "b**](http://a)"), ("*a [", "](http://a) b*"), ("![", "](http://a)"), ("_a*b", "*c_"), ("http://a(", ")"),
)  # fmt: skip
WITHIN = (
    "*", "*a", "*a ", "*_a", "*a_b~~c", "***a**b*", "_a_b", "`a``b```c", "<a@a.", "&#1", "a\n", "  \n", "http://", "http://%",
    "http://" + ")" * 2_000, "http://" + "." * 2_000 + "a ", "[a](" + " " * 3_900 + "x", "[a](b ", "[a](<b",
    '[a](b "', "![", "\\",
)  # fmt: skip


Text: TypeAlias = "str | list[tuple[str, int]]"
"""A text, or of what it is made: units that are repeated, and how many letters that is."""


@pytest.fixture(scope="module")
def modules(page_pool: PagePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A page for all tests that only call its modules."""
    options = ServerOptions(root=tmp_path_factory.mktemp("modules"), model=SPEC)
    with cc.open_store("memory:") as store, served(store, options) as url:
        person = page_pool.take(url)
        yield person
        page_pool.give_back(person, usable=True)


@pytest.fixture
def page(modules: Person, model: Model) -> Iterator[Page]:
    if modules.page.url == "about:blank":
        modules.open()
        expect(modules.composer).to_be_visible()
    yield modules.page
    modules.watch.check()


def once(unit: str) -> tuple[str, int]:
    return unit, len(unit)


def read(page: Page, reader: str, texts: Sequence[Text]) -> None:
    """Everything is read, and the page is back."""
    page.evaluate(BEGIN, [list(texts), reader])
    found = page.wait_for_function(FINISHED, timeout=PATIENT).json_value()
    assert len(cast(list[int], found)) == len(texts)


CODES: list[Text] = [
    *[[(unit, CODE)] for unit in REPEATED],
    *[[(unit, LINE), once("\n")] * 2 for unit in REPEATED if unit.strip()],
    *[[once("a" + " " * GAP) for _ in range(LINE // (GAP + 1))]],
    *[[once(start), (gap, CODE - 100), once("x")] for start in STARTS for gap in (" ", "\n", "aGk7")],
    "=/" + "[a]" * 15_000 + "\n",
    "=/[" + "\\a" * 25_000 + "\n",
]
SHARE = 1 if THOROUGH else 6
"""Each language reads one text of so many, and the next language the next ones."""


@pytest.mark.parametrize("language", some(LANGUAGES, 1))
def test_any_code_is_highlighted_quickly(page: Page, language: str) -> None:
    """Guarantee 12.3: no language has a pattern that looks at the same letters again and again."""
    read(page, language, CODES[LANGUAGES.index(language) % SHARE :: SHARE])


def test_any_lines_are_parsed_quickly(page: Page) -> None:
    """Guarantee 12.3: blocks are as many and as large as what was written, in time and in size."""
    read(page, "blocks", list(LINES.values()))


def test_any_text_is_parsed_quickly(page: Page) -> None:
    """Guarantee 12.3: emphasis, links and addresses, in as many paragraphs as there may be."""
    texts: list[Text] = [[(unit, WORDS)] for unit in WITHIN]
    texts += [[(opens, WORDS // 2), (closes, WORDS // 2)] for opens, closes in PAIRS]
    read(page, "inline", texts * (10 if THOROUGH else 1))


def test_input_that_is_slow_to_parse_is_shown(store: cc.Store, person: Person) -> None:
    """Guarantee 12.3: it is text like any other, not nested deeper than a browser bears, and what follows can be
    read.
    """
    fences = "".join(f"```{language}\n{'a' * 8_000}\n```\n\n" for language in ("css", "html", "js"))
    nested = "*" * 9_000 + "deep" + "*" * 9_000 + "\n\n" + "![" * 1_500 + "picture" + "](http://a.example)" * 1_000
    tables = (
        "a|" * 2_000
        + "\n"
        + "-|" * 2_000
        + "\n"
        + "|\n" * 2_000
        + "\n\n"
        + "a|" * 100
        + "\n"
        + "-|" * 100
        + "\n"
        + "|\n" * 2_000
    )
    texts = ["# a" + " \t" * 40_000 + "b", fences, "=/" + "[a]" * 60, nested, tables, "words " * 5_000]
    store.extend("demo", [cc.user("hi"), cc.assistant("\n\n".join([*texts, "And this is the end."]))])
    person.chat("demo")
    expect(person.page.get_by_text("And this is the end.")).to_be_visible(timeout=PATIENT)
    expect(person.page.locator(".prose strong, .prose em").get_by_text("deep").first).to_be_attached()
    assert cast(int, person.page.evaluate(DEEPEST)) < 40
    assert person.page.locator(".prose td").count() < 20_000


ORDINARY = """# Title ##

## Second #not closed
Words *so*, **so**, ***both***, ~~gone~~, `code`, snake_case_word and 2*3*4.
A [link](http://a.example/x "title"), <https://b.example>, (https://c.example/d(e)), https://f.example/g.
An ![image](https://h.example/i.png), &amp; and \\*not so\\*; [unsafe](javascript:x).

- one
- two
  1. inner
- [x] done

> quoted
> > twice

| a | b |
|:-:|--:|
| 1 | 2 |
| 3 |

```css
.a-b, #add-button { color: #fff; margin: 0 -10px }
```

~~~ js
const found = text.replace(/[/"]+\\/(?:a|b)/g, $call(x), $$(1)) / 2; // so
~~~

    indented

***
Underlined
==========
End\x20\x20
of it
"""
PARTS = (
    '<h3 class="h1">Title</h3><h4 class="h2">Second #not closed</h4>',
    "<em>so</em>, <strong>so</strong>, <em><strong>both</strong></em>, <del>gone</del>",
    "snake_case_word and 2<em>3</em>4.",
    ' title="http://a.example/x">link</a>',
    ">https://b.example</a>",
    ">https://c.example/d(e)</a>)",
    ">https://f.example/g</a>.",
    ' class="picture-link">image</a>, &amp; and *not so*; unsafe (javascript:x).</p>',
    '<span>two</span><ol dir="auto"><li class=""><span>inner</span></li></ol></li><li class="task">',
    '<p dir="auto">quoted</p><blockquote dir="auto"><p dir="auto">twice</p></blockquote></blockquote>',
    '<tr><td class="center">3</td><td class="end"></td></tr></tbody>',
    "<figcaption><span>css</span>",
    '<span class="t-name">.a-b</span>, <span class="t-call">#add-button</span> {',
    '(<span class="t-string">/[/"]+\\/(?:a|b)/g</span>, <span class="t-call">$call</span>(x), ',
    '<span class="t-call">$$</span>(',
    '<code dir="ltr">indented</code>',
    '<hr><h3 class="h1">Underlined</h3><p dir="auto">End<br>of it</p></div>',
)


def test_streamed_markdown_equals_markdown_parsed_at_once(page: Page) -> None:
    """Guarantee 12.2: what was there before stays, and nothing is other than it would have been."""
    lines = "".join(f"const value{number} = `several\nlines ${{{number}}}`; // so\n\n" for number in range(400))
    rows = "".join(f"| {number % 7} | *{number}* |\n" for number in range(200))
    items = "".join(f"- item {number % 5} `of`\n" for number in range(200))
    for text in (ORDINARY, f"Before\n\n```js\n{lines}", f"|a|b|\n|-|-|\n{rows}\n{items}\nLast", "word *word* " * 4_000):
        whole = cast(str, page.evaluate(SHOWN, [text, len(text)]))
        assert cast(str, page.evaluate(SHOWN, [text, max(7, len(text) // (150 if THOROUGH else 15))])) == whole


LATER = (
    "words\n#not a heading",
    "words\n***so*** and on",
    "1. one\n\n2. two\n\n\n3. three",
    "words\na | b\n--|--x",
    "words\na | b\n--|--\n1 | 2",
    "- a\n\n  b\n\nwords\n===",
    "> a\nb\n\n```\n> c\n\n```\n    d",
)


@pytest.mark.parametrize("text", LATER)
def test_what_turns_out_to_be_another_block_is_shown_as_that(page: Page, text: str) -> None:
    """The first letters of a line may look like another block, and then belong to the one above."""
    whole = cast(str, page.evaluate(SHOWN, [text, len(text)]))
    assert cast(str, page.evaluate(SHOWN, [text, 1])) == whole


def test_ordinary_markdown_is_shown_as_it_is_meant(page: Page) -> None:
    """Guarantee 12.2: what a model writes every day."""
    found = cast(str, page.evaluate(SHOWN, [ORDINARY, len(ORDINARY)]))
    for part in PARTS:
        assert part in found, part


def test_a_long_block_of_code_is_all_there(page: Page) -> None:
    """Guarantee 12.2: a page lays it out some lines at a time, and what is marked and copied has every line."""
    text = "".join(f"line_{number} = call({number})  # so\n\n" for number in range(3_000))
    selected, calls = cast(tuple[str, int], tuple(page.evaluate(SELECTED, text)))
    assert selected.rstrip() == text.rstrip()
    assert 1_500 < calls < 3_000, "so many as have colours"


@pytest.mark.parametrize(
    ("language", "text", "kinds"),
    [
        ("css", ".a-b:hover, #add-button {", {".a-b": "name", "hover": "constant", "#add-button": "call"}),
        (
            "css",
            "a { color: #fff; width: calc(10px) }",
            {"color": "key", "#fff": "constant", "calc": "call", "10px": "number"},
        ),
        ("js", 'a = /[/"]+x/g; b = 4 / 2 / 1', {'/[/"]+x/g': "string", "4": "number"}),
        ("js", "$call(x) && if_(y)", {"$call": "call", "if_": "call"}),
        ("html", "<a :href=\"x\" data-b='y'>", {"<a": "keyword", ":href": "key", '"x"': "string", "data-b": "key"}),
        (
            "python",
            "async def  name(x): return 1",
            {"def": "keyword", "name": "name", "return": "keyword", "1": "number"},
        ),
        ("bash", "ls -l |  grep x; $(cat y)", {"ls": "call", "-l": "key", "grep": "call", "$(cat y)": "meta"}),
        ("toml", "\n\n[a.b]\n  key = true", {"[a.b]": "constant", "key": "key", "true": "constant"}),
        ("yaml", "\n- - key: yes", {"- key": "key", "yes": "constant"}),
        ("json", '{"a": [1, null]}', {'"a"': "key", "1": "number", "null": "constant"}),
        ("sql", "select a from t -- so", {"select": "keyword", "from": "keyword", "-- so": "comment"}),
        ("diff", "@@ -1 +1 @@\n-a\n+b", {"@@ -1 +1 @@": "meta", "-a": "removed", "+b": "added"}),
        ("rust", 'fn main() { so!("x"); }', {"fn": "keyword", "main": "name", "so!": "call", '"x"': "string"}),
    ],
)
def test_code_has_its_colours(page: Page, language: str, text: str, kinds: dict[str, str]) -> None:
    """Guarantee 12.2: and joined, the pieces are the text again."""
    pieces = cast(list[list[str]], page.evaluate(TOKENS, [text, language]))
    assert "".join(piece for _, piece in pieces) == text
    found = {piece.strip(): kind for kind, piece in pieces}
    assert {piece: found.get(piece) for piece in kinds} == kinds
