"""The built-in prompt fragments.

`behaviour` is not in the table, because its text is configured. Fragments contain state only: an event, such as a
reminder or the result of a delegation, is a message.
"""

from contextc.prompts.builtin import agents, delegations, identity, project, response, todos, tools

BUILT_IN = {
    room.FRAGMENT.id: room.FRAGMENT for room in (identity, project, tools, todos, response, delegations, agents)
}
ON_REQUEST = {"tools"}
"""Built-in fragments that are added only by name."""
