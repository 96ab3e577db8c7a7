"""Reads JSON into dataclasses, checking every field."""

from __future__ import annotations

import json
import types
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ftnn.errors import DataError

T = TypeVar("T")


def from_json(kind: type[T], text: str, name: str) -> T:
    """Read a `kind` from JSON text; errors call it `name`."""
    try:
        return _as(kind, json.loads(text), name)
    except (ValueError, RecursionError) as error:  # DataError is a ValueError
        raise error if isinstance(error, DataError) else DataError(f"{name} is not JSON: {error}") from error


def _as(kind: Any, value: Any, name: str) -> Any:
    origin, choices = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        types_of = _types(kind)
        if unknown := value.keys() - types_of.keys():
            raise DataError(f"{name} has an unknown entry {sorted(map(str, unknown))[0]!r}")
        try:
            return kind(**{key: _as(types_of[key], part, f"{name}.{key}") for key, part in value.items()})
        except TypeError as error:  # an entry without a default is missing
            raise DataError(f"{name} is incomplete: {error}") from error
    if origin is list and isinstance(value, list):
        return [_as(choices[0], item, f"{name}[{n}]") for n, item in enumerate(value)]
    if origin in (Union, types.UnionType):
        for choice in choices:
            if not _is_wrong(choice, value):
                return value
    elif origin is Literal:
        if isinstance(value, str) and value in choices:
            return value
    elif not _is_wrong(kind, value):
        return value
    raise DataError(f"{name} is {value!r:.80}; expected {getattr(kind, '__name__', kind)}")


def _is_wrong(kind: Any, value: Any) -> bool:
    return type(value) is not kind and not (kind is float and type(value) is int)


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
