"""Model data: context windows, output limits, tokenizers, capabilities and prices."""

from contextc.models.lookup import list_models, list_vendors, model
from contextc.models.model_info import Model, Price, cost

__all__ = ["Model", "Price", "cost", "list_models", "list_vendors", "model"]
