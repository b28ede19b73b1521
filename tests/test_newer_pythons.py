"""What newer Pythons than that of the tests do otherwise, held against the text of the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


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
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    return [
        f"{node.name}: {name.id}"
        for node in classes
        for annotation in annotations(node.body)
        for name in ast.walk(annotation)
        if isinstance(name, ast.Name) and name.id in names_defined(node.body)
    ]


def test_no_annotation_names_what_its_class_defines() -> None:
    """Python 3.14 evaluates annotations when they are asked for. `date: date` then is the field."""
    assert shadowed("class A:\n    date: date\n    def list(self) -> list[int]: ...") == ["A: date", "A: list"]
    found = {str(path.relative_to(SOURCE)): shadowed(path.read_text()) for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
