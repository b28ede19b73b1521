"""Formats, providers and import sources of other packages, and contextc inside a zip file."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import contextc as cc

PLUGIN = """
import contextc as cc
from contextc.formats.openai_chat import OpenAIFormatter

class AcmeFormatter(OpenAIFormatter):
    name = "acme"

PROVIDER = {"format": "acme", "url": "https://acme.example/v1", "key": "ACME_KEY", "window": 9000}
ABOUT = "Acme's own files"

def matches(sample):
    return False

def read_conversations(given):
    return iter(())
"""
ENTRY_POINTS = """
[contextc.formats]
acme = acme:AcmeFormatter
anthropic = acme:AcmeFormatter
broken = acme:Missing
nothing = acme:ABOUT
[contextc.providers]
acme = acme:PROVIDER
openai = acme:PROVIDER
[contextc.sources]
acme = acme
har = acme
"""
USED = """
import contextc as cc
from contextc.formats import format_names
from contextc.interchange.sources import load_source, source_names
from contextc.providers import provider_names

assert {"acme", "anthropic", "broken"} <= set(format_names())
assert type(cc.formatter("acme")).__name__ == "AcmeFormatter"
assert type(cc.formatter("anthropic")).__name__ == "AnthropicFormatter"
made = cc.provider("acme:any")
assert (made.url, made.key, made.format, made.model.window) == ("https://acme.example/v1", "ACME_KEY", "acme", 9000)
assert cc.provider("openai:gpt-5.1").format != "acme"
assert "acme" in provider_names() and "acme" in source_names()
assert load_source("acme").ABOUT == "Acme's own files" and load_source("har").ABOUT != "Acme's own files"
with cc.open_store("memory:") as store:
    store.append("demo", cc.user("hi"))
    assert cc.MessageCompiler(store, made).compile("demo").params["messages"] == [{"role": "user", "content": "hi"}]
for name in ("broken", "nothing"):
    try:
        cc.formatter(name)
    except cc.errors.InvalidSetting as error:
        print(error)
"""


def run(code: str, *paths: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plugins_are_found_by_name_and_replace_nothing(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text(PLUGIN)
    metadata = tmp_path / "acme-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    broken, nothing = run(USED, tmp_path).splitlines()
    assert "contextc.formats: entry point 'broken' (acme:Missing) cannot be loaded" in broken
    assert "entry point 'nothing' must be a subclass of Formatter" in nothing


ZIPPED = """
import sys, contextc as cc
from contextc.formats import format_names

assert ".zip" in cc.__file__, cc.__file__
for name in format_names():
    cc.lint(cc.formatter(name).format([cc.user("hi")]), format=name)
provider = cc.provider("anthropic:claude-opus-5-5")
with cc.open_store("sqlite:///" + sys.argv[1]) as store:
    store.append("demo", cc.user("hi"))
    cc.MessageCompiler(store, provider).compile("demo")
print(*format_names())
"""


def test_contextc_works_from_a_zip_file(tmp_path: Path) -> None:
    root = Path(cc.__file__).parent
    with zipfile.ZipFile(tmp_path / "contextc.zip", "w") as archive:
        for path in root.rglob("*"):
            if path.suffix in (".py", ".toml", ".sql", ".jinja") and "static" not in path.parts:
                archive.write(path, path.relative_to(root.parent))
    code = ZIPPED.replace("sys.argv[1]", repr(str(tmp_path / "a.db")))
    assert run(code, tmp_path / "contextc.zip").split() == [*cc.formats.format_names()]
