"""A tool as a model is told about it."""

from msgspec import Struct

from contextc._json import JSONObject
from contextc.messages import Extra


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A function a model may call. `parameters` is the JSON Schema of its arguments; `strict` holds the model to it."""

    name: str
    description: str = ""
    parameters: JSONObject = {}
    strict: bool | None = None
    extra: Extra | None = None


class NativeTool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tool that only one provider has, and runs itself: passed on to it as it is, and to nobody else."""

    provider: str
    data: JSONObject
    extra: Extra | None = None
