"""Model data: context windows, output limits, tokenizers, capabilities and prices."""

from contextc.models.billing import Bill, add_bills, bill, cost
from contextc.models.model_info import Model, Price, list_models, list_vendors, model

__all__ = ["Bill", "Model", "Price", "add_bills", "bill", "cost", "list_models", "list_vendors", "model"]
