"""litellm uses the table of models in its package: otherwise each process that imports it tries to fetch a newer one."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
