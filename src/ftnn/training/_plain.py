"""Plain data from JSON back into our dataclasses, with every field checked."""

from __future__ import annotations

import json
import types
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ftnn.errors import DataError

T = TypeVar("T")


def parse(kind: type[T], text: str, name: str) -> T:
    """The `kind` that a JSON text holds; `name` says in errors what it was meant to be."""
    try:
        return _as(kind, json.loads(text), name)
    except (ValueError, RecursionError) as error:  # DataError is a ValueError
        raise error if isinstance(error, DataError) else DataError(f"{name} is not JSON: {error}") from error


def _as(kind: Any, given: Any, name: str) -> Any:
    origin, choices = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(given, dict):
        known = _types(kind)
        if unknown := given.keys() - known.keys():
            raise DataError(f"{name} has an unknown entry {sorted(map(str, unknown))[0]!r}")
        try:
            return kind(**{key: _as(known[key], value, f"{name}.{key}") for key, value in given.items()})
        except TypeError as error:  # an entry without a default is missing
            raise DataError(f"{name} is incomplete: {error}") from error
    if origin is list and isinstance(given, list):
        return [_as(choices[0], each, f"{name}[{n}]") for n, each in enumerate(given)]
    if origin in (Union, types.UnionType):
        for choice in choices:
            if not _is_wrong(choice, given):
                return given
    elif origin is Literal:
        if isinstance(given, str) and given in choices:
            return given
    elif not _is_wrong(kind, given):
        return given
    raise DataError(f"{name} is {given!r:.80}; expected {getattr(kind, '__name__', kind)}")


def _is_wrong(kind: Any, given: Any) -> bool:
    return type(given) is not kind and not (kind is float and type(given) is int)


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
