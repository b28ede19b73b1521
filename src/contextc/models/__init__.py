"""Model data: context windows, output limits, tokenizers, capabilities and prices."""

from contextc.models.facts import Model, Price, cost
from contextc.models.find import house_names, model, model_names

__all__ = ["Model", "Price", "cost", "house_names", "model", "model_names"]
