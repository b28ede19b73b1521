"""An MCP server that asks questions while its tools run. It is a client of nothing, so answers come from a person.

`order` asks for a size and, if that is large, for a confirmation, and writes both rounds to the file that the variable
NOTES names. Its state is sealed with a key of its process, unless KEY has one: as servers of the package do it.
"""

import json
import os
from typing import Annotated, Any

from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequests,
    InputRequiredResult,
    ListRootsRequest,
)
from pydantic import BaseModel

key = os.environ.get("KEY")
server = MCPServer("asking", request_state_security=RequestStateSecurity(keys=[key]) if key else None)
SIZES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["small", "large"], "title": "Size"},
        "cups": {"type": "integer", "minimum": 1, "maximum": 9},
        "gift": {"type": "boolean"},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["size"],
}
SURE: dict[str, Any] = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


class Name(BaseModel):
    name: str


def form(message: str, schema: dict[str, Any]) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def note(text: str) -> None:
    if path := os.environ.get("NOTES"):
        with open(path, "a") as file:
            file.write(f"{text}\n")


@server.tool(structured_output=False)
def order(drink: str, context: Context) -> str | InputRequiredResult:
    """Order a drink."""
    given = {name: each.model_dump(exclude_none=True) for name, each in (context.input_responses or {}).items()}
    note(json.dumps([context.request_state, given]))
    if not given:
        return InputRequiredResult(input_requests={"size": form(f"Which size of {drink}?", SIZES)}, request_state=drink)
    if "size" in given:
        if given["size"]["action"] != "accept":
            return f"No {drink}: {given['size']['action']}."
        content = given["size"]["content"]
        if content["size"] != "large":
            return f"One {drink}, {json.dumps(content)}."
        return InputRequiredResult(input_requests={"sure": form("Sure?", SURE)}, request_state=f"large {drink}")
    return f"One {context.request_state}, {given['sure']['content']['sure']}."


async def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool(structured_output=False)
async def greet(name: Annotated[ElicitationResult[Name], Resolve(ask_name)]) -> str:
    """Greet the user, after asking for the name, with any version of the protocol."""
    return f"Hello {name.data.name}" if isinstance(name, AcceptedElicitation) else "Hello stranger"


@server.tool(structured_output=False)
def visit(context: Context) -> str | InputRequiredResult:
    """Ask for a visit to a web page."""
    if context.input_responses:
        return json.dumps(context.input_responses["page"].model_dump(exclude_none=True))
    page = ElicitRequestURLParams(message="Sign in.", url=os.environ.get("PAGE", "https://shop.example/login?a=1"))
    return InputRequiredResult(input_requests={"page": ElicitRequest(params=page)})


@server.tool(structured_output=False)
def several(context: Context) -> str | InputRequiredResult:
    """Ask for two forms at once."""
    if context.input_responses:
        return json.dumps({name: each.model_dump(exclude_none=True) for name, each in context.input_responses.items()})
    return InputRequiredResult(input_requests={"one": form("Size?", SIZES), "two": form("Sure?", SURE)})


@server.tool(structured_output=False)
def forever(context: Context) -> str | InputRequiredResult:
    """Ask again and again."""
    rounds = int(context.request_state or 0) + 1
    return InputRequiredResult(input_requests={"sure": form(f"Sure {rounds}?", SURE)}, request_state=str(rounds))


@server.tool(structured_output=False)
def later(context: Context) -> str | InputRequiredResult:
    """Ask nothing, but to be called again."""
    rounds = int(context.request_state or 0)
    return "ready" if rounds == 2 else InputRequiredResult(request_state=str(rounds + 1))


@server.tool(structured_output=False)
def never(context: Context) -> str | InputRequiredResult:
    """Ask nothing, forever."""
    return InputRequiredResult(request_state="again")


@server.tool(structured_output=False)
def roots(context: Context) -> str | InputRequiredResult:
    """Ask for the folders of the user."""
    return InputRequiredResult(input_requests={"folders": ListRootsRequest()})


@server.tool(structured_output=False)
def raw(
    context: Context, message: str, schema: dict[str, Any], copies: int = 1, state: int = 0
) -> str | InputRequiredResult:
    """Ask with any form."""
    if context.input_responses:
        return json.dumps({name: each.model_dump(exclude_none=True) for name, each in context.input_responses.items()})
    asked: InputRequests = {f"form{number}": form(message, schema) for number in range(copies)}
    return InputRequiredResult(input_requests=asked, request_state="x" * state or None)


if __name__ == "__main__":
    server.run()
