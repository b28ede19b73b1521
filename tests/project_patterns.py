"""Every regular expression of the package: of its source, of its data, and of the scripts of the web UI.

Three ways, so that none escapes: values of imported modules, calls of `re` with a literal in the source, and `BUILT`,
which must name every function that builds an expression from other values.
"""

import ast
import gc
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import contextc
from contextc.analysis import cache_model
from contextc.errors import InvalidSetting
from contextc.formats.bedrock.schema import Schema
from contextc.models import billing_table
from contextc.observation import client_ids, exchange_redaction
from contextc.providers import ollama, registry, structured_output
from contextc.providers.error_mapping import ErrorTable
from contextc.proxy import forward_proxy, upstreams
from contextc.sharing import shared_html
from contextc.tools.builtin import search_worker

ROOT = Path(contextc.__file__).parent
FUNCTIONS = {"compile", "match", "search", "sub", "subn", "split", "findall", "finditer", "fullmatch"}
ANCHORED = {"match", "fullmatch"}
JAVASCRIPT = re.compile(
    r"(?:^|[(,=:\[!&|?{};]|return|=>)\s*/((?![*/>])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([dgimsuvy]*)(?=\s*(?:$|[.,;:)\]}?&|]))",
    re.MULTILINE,
)
MENTIONS = re.compile(rf"\bre\b|IdentifierCodec|ErrorTable|[A-Z_]\.(?:{'|'.join(sorted(FUNCTIONS))})\(")
"""A module without any of these has no expression, and uses none."""
GLOBS = ("*.py", "src/**/*.py", "**/a*b*c*.{js,ts}", "**/**/**/x*")


class Used(NamedTuple):
    """A regular expression, where it is, and the method that searches with it: search, match or fullmatch."""

    where: str
    pattern: re.Pattern[Any]
    method: str


def project_patterns() -> list[Used]:
    """Return them all. Garbage is not collected meanwhile: to look through the parsed source takes too long."""
    gc.disable()
    try:
        found = {(each.pattern, each.method): each for each in [*_of_modules(), *_of_calls(), *_of_scripts()]}
    finally:
        for cached in (_modules, _nodes, _imported, _methods):
            cached.cache_clear()
        gc.enable()
    return sorted(found.values(), key=lambda each: each.where)


@cache
def _modules() -> dict[str, ast.Module]:
    paths = {
        ".".join(("contextc", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in sorted(ROOT.rglob("*.py"))
    }
    sources = {name: path.read_text() for name, path in paths.items() if not name.endswith("__main__")}
    return {name: ast.parse(source) for name, source in sources.items() if MENTIONS.search(source)}


def _of_modules() -> Iterator[Used]:
    methods = _methods()
    for module, tree in _modules().items():
        try:
            variables = vars(importlib.import_module(module))
        except (ModuleNotFoundError, InvalidSetting):  # an adapter of a framework that is not installed
            continue
        origins = _imported(tree)
        for name, value in variables.items():
            if isinstance(value, re.Pattern):
                used = methods.get(origins.get(name, (module, name))) or {"search"}
                yield from (Used(f"{module}.{name}", value, each) for each in _reduced(used))
            elif name not in origins and not name.startswith("__"):
                used = methods.get((module, "")) or {"search"}
                inside = list(_inside(value, set()))
                yield from (Used(f"{module}.{name}", each, method) for each in inside for method in _reduced(used))
    for where, (build, method) in BUILT.items():
        yield from (Used(where, each, method) for each in build())


def _reduced(methods: set[str]) -> set[str]:
    return methods if methods <= ANCHORED else {"search"}


def _inside(value: object, seen: set[int]) -> Iterator[re.Pattern[Any]]:
    """Yield the expressions in a container, or in an object of this package."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        values = list(cast(Mapping[object, object], value).values())
        yield from (each for inner in values for each in _inside(inner, seen))
    elif isinstance(value, list | tuple | set | frozenset):
        values = list(cast(Iterable[object], value))
        yield from (each for inner in values for each in _inside(inner, seen))
    elif type(value).__module__.startswith("contextc."):
        names = getattr(value, "__struct_fields__", None) or list(getattr(value, "__dict__", {}))
        yield from (each for name in names for each in _inside(getattr(value, name, None), seen))


@cache
def _nodes(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """Return what is looked at in a module, with its function, from one walk: it takes longer than all the rest."""
    found: list[tuple[ast.AST, str]] = []
    ahead: list[tuple[ast.AST, str]] = [(tree, "")]
    while ahead:
        node, function = ahead.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        elif isinstance(node, ast.Attribute | ast.Name | ast.ImportFrom | ast.Call):
            found.append((node, function))
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                ahead.append((value, function))
            elif isinstance(value, list):
                ahead += [(each, function) for each in cast(list[object], value) if isinstance(each, ast.AST)]
    return found


@cache
def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    imports = [node for node, _ in _nodes(tree) if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name: (node.module or "", each.name) for node in imports for each in node.names}


@cache
def _methods() -> dict[tuple[str, str], set[str]]:
    """Return the methods called on each variable of a module, there and where it is imported; on "" those on any."""
    found: dict[tuple[str, str], set[str]] = {}
    for module, tree in _modules().items():
        imported = _imported(tree)
        called = set[int]()
        for node, _ in _nodes(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called.add(id(node.value))
                found.setdefault(imported.get(node.value.id, (module, node.value.id)), set()).add(node.attr)
                if node.attr in FUNCTIONS and node.value.id != "re":
                    found.setdefault((module, ""), set()).add(node.attr)
        for node, _ in _nodes(tree):  # passed on, so that its use is unknown
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
                found.setdefault(imported.get(node.id, (module, node.id)), set()).add("search")
    return found


def _of_calls() -> Iterator[Used]:
    for module, tree in _modules().items():
        for call, function in _calls(tree):
            name, given = cast(ast.Attribute, call.func).attr, call.args[0]
            where = f"{module}:{function or '(module)'}"
            if isinstance(given, ast.Constant):
                if name == "compile" and not function:
                    continue  # a value of the module
                method = name if name in ANCHORED else "search"
                yield Used(where, re.compile(cast(str, given.value), _flags(call)), method)
            elif function and where not in BUILT and where not in GIVEN_BY_USERS:
                raise AssertionError(
                    f"{where}: builds a regular expression. Name it in BUILT of {Path(__file__).name}."
                )


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    for node, function in _nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:
            module = node.func.value
            yield from [(node, function)] if isinstance(module, ast.Name) and module.id == "re" and node.args else ()


def _flags(call: ast.Call) -> int:
    place = {"sub": 4, "subn": 4, "split": 3, "compile": 1}.get(cast(ast.Attribute, call.func).attr, 2)
    given = [*call.args[place : place + 1], *[each.value for each in call.keywords if each.arg == "flags"]]
    return int(eval(ast.unparse(given[0]), {"re": re})) if given else 0


def _of_scripts() -> Iterator[Used]:
    """Yield the literals of the web UI's scripts. Python reads them as JavaScript does, after a few replacements."""
    for path in sorted((ROOT / "web/static/app").rglob("*.js")):
        for match in JAVASCRIPT.finditer(path.read_text()):
            text, flags = match[1].replace(r"\/", "/"), match[2]
            text = re.sub(r"\\p\{\w+\}|\\P\{\w+\}", "a-z", text).replace("(?<", "(?P<").replace("(?P<=", "(?<=")
            text = re.sub(r"\\u\{?([0-9a-fA-F]{4,5})\}?", lambda each: re.escape(chr(int(each[1], 16))), text)
            text = text.replace("(?P<!", "(?<!").replace("[^]", r"[\s\S]").replace("[[", r"[\[")
            options = sum({"i": re.I, "m": re.M, "s": re.S}.get(each, 0) for each in flags)
            where = f"{path.relative_to(ROOT)}: /{match[1]}/{flags}"
            try:
                yield Used(where, re.compile(text, options), "match" if "y" in flags else "search")
            except re.error as error:
                raise AssertionError(f"{where}: not understood ({error})") from None


def _texts(texts: Iterable[str], flags: int = 0) -> list[re.Pattern[str]]:
    return [re.compile(each, flags) for each in texts if each]


def _error_tables() -> list[re.Pattern[str]]:
    tables = [
        value
        for module in _modules()
        if module.startswith("contextc.providers")
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, ErrorTable)
    ]
    words = [
        each for name in registry.provider_names() for each in contextc.provider(f"{name}:m", window=9).refusal_words
    ]
    return _texts([*[pattern for table in tables for pattern, _ in table.patterns], *words], re.IGNORECASE)


def _schemas(value: object, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Schema):
        yield value.pattern
        yield from (each for name in value.__struct_fields__ for each in _schemas(getattr(value, name), seen))
    elif isinstance(value, Mapping):
        yield from (each for inner in cast(Mapping[str, object], value).values() for each in _schemas(inner, seen))


def _bedrock_schemas() -> list[re.Pattern[str]]:
    variables = vars(importlib.import_module("contextc.formats.bedrock.schema"))
    return _texts({each for value in variables.values() for each in _schemas(value, set())})


def _structured_output() -> list[re.Pattern[str]]:
    facts = structured_output.structured_output_facts().values()
    return _texts([each for fact in facts for each in (fact.models, fact.without_tools, fact.excluded_ids)])


def _share() -> list[re.Pattern[str]]:
    compile_files = _private(shared_html, "_compile_files")
    return [compile_files([]), compile_files(["src/app.py", "notes", "a-b"])]


def _private(module: ModuleType, name: str) -> Callable[..., Any]:
    return getattr(module, name)


BUILT: dict[str, tuple[Callable[[], Iterable[re.Pattern[Any]]], str]] = {
    "contextc._installed_packages:_oldest_version": (lambda: _texts(["""extra == ['"]web['"]"""]), "search"),
    "contextc.analysis.cache_model:_read_entry": (
        lambda: _inside(_private(cache_model, "_load_rules")(), set()),
        "search",
    ),
    "contextc.formats.bedrock.schema:_violated_constraint": (_bedrock_schemas, "fullmatch"),
    "contextc.formats.message_preparation:__init__": (lambda: (), "search"),  # values of the formats' modules
    "contextc.formats.rule_library:complete": (lambda: _texts([re.escape("{…}") + r",\s+…"]), "search"),
    "contextc.observation.client_ids:_session": (
        lambda: _texts([each.pattern for each in client_ids.known_clients()]),
        "search",
    ),
    "contextc.observation.client_ids:_is_side": (
        lambda: _texts([each.side_tools for each in client_ids.known_clients()]),
        "fullmatch",
    ),
    "contextc._credential_mask:compile_pattern": (
        lambda: _inside(exchange_redaction.compile_patterns(True), set()),
        "search",
    ),
    "contextc.proxy.forward_proxy:host_patterns": (
        lambda: [each.pattern for each in forward_proxy.host_patterns()],
        "fullmatch",
    ),
    "contextc.models.billing_table:find_name_factor": (
        lambda: _texts([each.pattern for each in billing_table.load_table().name]),
        "match",
    ),
    "contextc.providers.error_mapping:failure_kind": (_error_tables, "search"),
    "contextc.providers.ollama:_helped": (lambda: _texts([each for each, _ in ollama.FIXES], re.I), "search"),
    "contextc.providers.structured_output:has_structured_output": (_structured_output, "fullmatch"),
    "contextc.proxy.client_setup:_sets": (
        lambda: _texts([r"""^(?![^\S\n]*+(?:#|//)).*(?<![\w.-])base_url["']?\s*[=:]"""], re.MULTILINE),
        "search",
    ),
    "contextc.proxy.upstreams:_recorded_paths": (
        lambda: _inside(_private(upstreams, "_recorded_paths")(), set()),
        "search",
    ),
    "contextc.sharing.shared_html:_compile_files": (_share, "search"),
    "contextc.tools.builtin.search_worker:glob_pattern": (
        lambda: [search_worker.glob_pattern(each) for each in GLOBS],
        "fullmatch",
    ),
}
"""Functions that build expressions, what they build, and how it is used."""
GIVEN_BY_USERS = {
    "contextc.observation.user_regex_search:main",
    "contextc.observation.exchange_redaction:_compile",
    "contextc.tools.builtin.search_worker:main",
    "contextc.web.api.conversations:_compile_pattern",
}
"""Functions that compile the expression of a user or a model. It runs in a process with a time limit."""
