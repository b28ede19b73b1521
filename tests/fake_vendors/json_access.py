"""Access to unchecked JSON as objects and lists. A value of another type becomes empty."""

from typing import cast

from contextc._json import JSON, JSONObject


def as_object(value: JSON) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def as_list(value: JSON) -> list[JSONObject]:
    return [as_object(each) for each in cast(list[JSON], value)] if isinstance(value, list) else []
