"""Model data: context windows, output limits, tokenizers, capabilities and prices."""

from contextc.models.model_info import Model, Price, cost, list_models, list_vendors, model

__all__ = ["Model", "Price", "cost", "list_models", "list_vendors", "model"]
