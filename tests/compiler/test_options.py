"""The keyword arguments of compilers, models and providers have the same names as the fields that they set."""

from dataclasses import FrozenInstanceError, fields

import pytest
from msgspec.structs import fields as struct_fields

from contextc.compiler.draft import CompilerOptionArguments, CompilerOptions
from contextc.executor.agent_config import AgentConfig
from contextc.models.model_info import FACT_NAMES, ModelFacts
from contextc.providers.registry import CALL_FIELDS, FLAG_FIELDS, TEXT_FIELDS, ProviderFacts


def test_compiler_options_can_all_be_passed_by_name() -> None:
    assert [*CompilerOptionArguments.__annotations__] == [each.name for each in struct_fields(CompilerOptions)]


def test_facts_about_models_and_providers_can_all_be_passed_by_name() -> None:
    explicit = {"vendor", "window", "output"}
    assert {*ModelFacts.__annotations__} == {*FACT_NAMES} - explicit
    assert {*ProviderFacts.__annotations__} == {*FACT_NAMES, *FLAG_FIELDS, *TEXT_FIELDS, *CALL_FIELDS} - {
        "window",
        "output",
    }


def test_the_configuration_of_an_agent_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        object.__new__(AgentConfig).max_input_tokens = 1  # pyright: ignore[reportAttributeAccessIssue]
    assert [*AgentConfig.__slots__] == [each.name for each in fields(AgentConfig)]
