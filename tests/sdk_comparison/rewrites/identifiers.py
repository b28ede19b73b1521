"""Ids of calls and names of tools, in letters that the provider takes."""

from contextc._json import JSONObject
from tests.sdk_comparison.rewrites.bodies import IDS, RewriteContext, objects


def spell(body: JSONObject, told: RewriteContext) -> None:
    ids = {id: told.form.name_codec.encode_id(id) for id in told.calls()}
    names = [call.name for call in told.calls().values()] + [tool.name for tool in told.conversation.tools]
    spelled = {name: told.form.name_codec.names.encode(name) if told.form.name_codec.names else name for name in names}
    for thing in objects(body):
        for key in IDS:
            if isinstance(thing.get(key), str):
                thing[key] = ids.get(thing[key], thing[key])
        if isinstance(thing.get("name"), str):
            thing["name"] = spelled.get(thing["name"], thing["name"])
