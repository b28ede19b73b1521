"""Model data: context windows, output limits, tokenizers, capabilities and prices."""

from contextc.models.facts import Model, Price, cost
from contextc.models.find import list_models, list_vendors, model

__all__ = ["Model", "Price", "cost", "list_vendors", "model", "list_models"]
