"""Reads the cases of a set from tests/data/traces. One more case is one more table in its file.

| key | meaning |
|---|---|
| `on` | wire formats; a trace is built for each |
| `steps` | what happens, in the language of `script.py`; instead of them, `recorded` names a recorded session |
| `agent` | fields of the main agent |
| `values` | values for `$name`, beside those of the file |
| `with` | the name of options that several cases of the file share |
| `like` | the name of another case, whose agent, values and steps it has |
| `name` | the name of the case, if another case of the file has it too |
| `why` | for readers |

All others are options of the `Session`. A value can be a table with one for each wire format.
"""

import tomllib
from pathlib import Path
from typing import Any, cast

from tests.analysis.traces.recorded import replay_session
from tests.analysis.traces.script import Script
from tests.analysis.traces.simulated_client import Session
from tests.analysis.traces.special_steps import CHANGES, STEPS
from tests.analysis.traces.trace import Trace

DATA = Path(__file__).parent.parent.parent / "data" / "traces"
ALL = ("anthropic", "chat", "responses", "gemini", "bedrock")
WIRES = {"all": ALL, "marked": ("anthropic", "bedrock"), "openai": ("chat", "responses")}
LIKE = {"steps", "agent", "values"}
KEYS = {*LIKE, "on", "recorded", "with", "like", "name", "why"}
JSONObject = dict[str, Any]


def build_traces(half: str) -> list[Trace]:
    """Return the traces of a set. The subject of each follows from its number."""
    cases = tomllib.loads((DATA / f"{half}.toml").read_text(encoding="utf-8"))
    subjects, values, shared = (cases.pop(name, {}) for name in ("subjects", "values", "options"))
    made: list[Trace] = []
    for name, case in cases.items():
        case = {**{key: value for key, value in cases.get(case.get("like"), {}).items() if key in LIKE}, **case}
        case = {**shared.get(case.get("with"), {}), **case, "values": {**values, **case.get("values", {})}}
        for word in str(case["on"]).split():
            for wire in WIRES.get(word, (word,)):
                subject = subjects[len(made) % len(subjects)]
                made.append(build_trace(f"{half}-{case.get('name', name)}-{wire}", half, wire, subject, case))
    return made


def build_trace(name: str, half: str, wire: str, subject: str, case: JSONObject) -> Trace:
    values = for_wire(case["values"], wire)
    options = for_wire({key: value for key, value in case.items() if key not in KEYS}, wire)
    if str(options.get("model")).startswith("$"):
        options["model"] = values[options["model"][1:]]
    session = Session(name, half, wire, subject, **options)
    if "recorded" in case:
        recorded: JSONObject = {**case["recorded"], "change": CHANGES.get(case["recorded"].get("change", ""))}
        replay_session(session, **recorded)
    else:
        Script(session, values, STEPS, for_wire(case.get("agent", {}), wire)).run(case["steps"])
    return session.trace()


def for_wire(given: JSONObject, wire: str) -> JSONObject:
    """Return values for a wire format: each that is a table of wire formats has one for this format, or none."""
    made: JSONObject = {
        key: cast(JSONObject, value).get(wire)
        if isinstance(value, dict) and value and value.keys() <= {*ALL}
        else value
        for key, value in given.items()
    }
    return {key: value for key, value in made.items() if value is not None}
