"""What every model of the contract shares: frozen, strict, camelCase, rules that hold on both sides.

A ``Rule`` is stated once as CEL and once as Python. The CEL goes into the CRD, so that ``kubectl
apply`` refuses a wrong object while the operator is down; the Python side serves ``vlmctl`` and the operator.
Used by ``spec``, ``pod_template`` and ``status``.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

from vlm_operator.api.descriptions import field_descriptions

BROKEN_RULES: Final = "broken_rules"
"""Type of the pydantic error that carries every broken rule of one object in its context, under ``rules``."""

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Something that several fields of one object must agree on.

    ``field`` is the camelCase name of the field to blame, empty for the object itself. The values of the
    fields in ``quoted`` go before the message here; CEL's cost model takes joined text for endless.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""
    quoted: tuple[str, ...] = ()

    def as_validation(self) -> dict[str, str]:
        """Return the entry of ``x-kubernetes-validations``."""
        validation = {"rule": self.cel, "message": self.message}
        if self.field:
            validation["fieldPath"] = f".{self.field}"
        return validation

    def explain(self, values: Mapping[str, Any]) -> str:
        """Return the message about an object with these ``values`` by camelCase name."""
        quoted = ", ".join(f"{name} is {values[name]}" for name in self.quoted)
        return f"{quoted}: {self.message}" if quoted else self.message


class ApiModel(BaseModel):
    """An object of the contract."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        broken = [rule for rule in self.rules if not rule.holds(self)]
        if broken:
            values = self.model_dump(by_alias=True)
            found = [(rule.field, rule.explain(values)) for rule in broken]
            raise PydanticCustomError(
                BROKEN_RULES, "{summary}", {"rules": found, "summary": "; ".join(m for _, m in found)}
            )
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> dict[str, Any]:
        """Return the JSON schema with the words about each field and the rules as ``x-kubernetes-validations``."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, words in field_descriptions(cls).items():
            schema["properties"][name]["description"] = words
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.as_validation() for rule in cls.rules]
        return schema


def unique_by(*keys: str) -> AfterValidator:
    """Return a validator that refuses two items of a list with the same values under ``keys`` (camelCase)."""

    def check(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
        seen: dict[tuple[Any, ...], int] = {}
        for index, item in enumerate(items):
            values = tuple(getattr(item, key) for key in keys)
            first = seen.setdefault(values, index)
            if first != index:
                named = ", ".join(f"{key} {value}" for key, value in zip(keys, values, strict=True))
                raise PydanticCustomError(
                    "duplicate",
                    "entries {first} and {second} both have {named}; merge them into one",
                    {"first": first, "second": index, "named": named},
                )
        return items

    return AfterValidator(check)


def list_map(*keys: str) -> dict[str, Any]:
    """Return the schema extension that lets the API server merge by ``keys`` and refuse duplicates."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def whole(minimum: int, maximum: int) -> Any:
    """Return the bounds of a whole number, both ends included."""
    return Field(ge=minimum, le=maximum)
