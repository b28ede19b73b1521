"""What newer Pythons than that of the tests do otherwise, held against the text of the code."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def classes(body: Sequence[ast.AST]) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module, also those in classes, functions and conditions, without a look at expressions."""
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield each
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from classes(getattr(each, block, []))


def names_defined(body: list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
        elif isinstance(each, ast.Assign):
            found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    return found


def annotations(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for each in body:
        if isinstance(each, ast.AnnAssign):
            yield each.annotation
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            named = each.args
            arguments = [*named.posonlyargs, *named.args, *named.kwonlyargs, named.vararg, named.kwarg]
            yield from (given.annotation for given in arguments if given and given.annotation)
            yield from [each.returns] if each.returns else []


def shadowed(source: str) -> list[str]:
    """Return the names in annotations of classes that these classes define themselves."""
    return [
        f"{node.name}: {name.id}"
        for node in classes(ast.parse(source).body)
        for defined in [names_defined(node.body)]
        for annotation in annotations(node.body)
        for name in ast.walk(annotation)
        if isinstance(name, ast.Name) and name.id in defined
    ]


def test_no_annotation_names_what_its_class_defines() -> None:
    """Python 3.14 evaluates annotations when they are asked for. `date: date` then is the field."""
    assert shadowed("class A:\n    date: date\n    def list(self) -> list[int]: ...") == ["A: date", "A: list"]
    found = {str(path.relative_to(SOURCE)): shadowed(path.read_text()) for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
