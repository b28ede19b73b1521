"""The built-in fragments, one file each. One more is one more file, and one line here.

`behaviour` is not in the table, because its text is configured. State only: what happens once, such as a nudge or a
delegation's result, is a message and never a fragment.
"""

from contextc.prompts.builtin import agents, delegations, identity, project, response, todos, tools

BUILT_IN = {
    room.FRAGMENT.id: room.FRAGMENT for room in (identity, project, tools, todos, response, delegations, agents)
}
ON_REQUEST = {"tools"}
"""Built in, but taken only where it is named."""
