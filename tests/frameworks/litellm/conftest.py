"""Use the table of models in the package of litellm: each process that imports it tries to fetch a newer one."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
