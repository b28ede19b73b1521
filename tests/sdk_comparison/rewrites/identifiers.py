"""Ids of calls and names of tools, in characters that the provider accepts."""

from contextc._json import JSONObject
from tests.sdk_comparison.rewrites.bodies import IDS, RewriteContext, objects


def spell(body: JSONObject, context: RewriteContext) -> None:
    ids = {id: context.form.name_codec.encode_id(id) for id in context.calls()}
    names = [call.name for call in context.calls().values()] + [tool.name for tool in context.conversation.tools]
    spelled = {
        name: context.form.name_codec.names.encode(name) if context.form.name_codec.names else name for name in names
    }
    for thing in objects(body):
        for key in IDS:
            if isinstance(thing.get(key), str):
                thing[key] = ids.get(thing[key], thing[key])
        if isinstance(thing.get("name"), str):
            thing["name"] = spelled.get(thing["name"], thing["name"])
