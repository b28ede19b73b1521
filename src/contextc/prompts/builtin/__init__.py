"""The built-in prompt fragments.

`behaviour` is not in the table, because its text is configured. Fragments contain state only: an event, such as a
reminder or the result of a delegation, is a message.
"""

from contextc.prompts.builtin import agents, delegations, identity, project, response, todos, tools

BUILTIN_FRAGMENTS = {
    each.id: each
    for each in (
        identity.IDENTITY,
        project.PROJECT,
        tools.TOOLS,
        todos.TODOS,
        response.RESPONSE,
        delegations.DELEGATIONS,
        agents.AGENTS,
    )
}
ADDED_BY_NAME = {"tools"}
"""Built-in fragments that are added only by name."""
