"""The OpenAPI description of the admin API, made from its declared endpoints (`endpoints`).

Results are described by the types that the endpoints are checked against (`shapes`), bodies by the
models that read them (`requests`).  docs/reference/openapi.json is this description; a test
compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from horolog import __version__
from horolog.admin.answers import JSON
from horolog.admin.endpoints import Access, Endpoint
from horolog.admin.status import http_status
from horolog.errors import ErrorCode, HorologError

_SCHEMAS = "#/components/schemas/{model}"
_REFUSED = "#/components/responses/Refused"
_WHOLE = {"queue", "number"}  # path parameters that are numbers
_EVERY = (
    ErrorCode.BAD_REQUEST,
    ErrorCode.UNAUTHORIZED,
    ErrorCode.FORBIDDEN,
    ErrorCode.TOO_MANY_REQUESTS,
    ErrorCode.INTERNAL,
    ErrorCode.DISK_FAILED,
)
"""Error codes that any route may answer with."""
_EVERY_WRITE = (ErrorCode.DISK_FULL, ErrorCode.BODY_TOO_LARGE, ErrorCode.PROPERTIES_TOO_LARGE)


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the whole OpenAPI document."""
    shapes = _Shapes()
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "horolog admin API",
            "version": __version__,
            "description": "For operators, scripts and tests; see docs/reference/http.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted({**shapes.defined, "Error": _error_shape()}.items())),
            "responses": {
                "Refused": {
                    "description": "The request was refused, and nothing was changed.",
                    "content": {JSON: {"schema": {"$ref": _SCHEMAS.format(model="Error")}}},
                }
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


class _Shapes:
    """JSON schemas of models and types; each with a name is defined once."""

    def __init__(self) -> None:
        self.defined: dict[str, Any] = {}

    def of(self, model: Any, *, answered: bool) -> dict[str, Any]:
        """Return a reference to a named schema, or the schema itself.

        answered  True: as in results; False: as in requests
        """
        mode = "serialization" if answered else "validation"
        schema = TypeAdapter(model).json_schema(ref_template=_SCHEMAS, mode=mode)  # type: ignore[arg-type]
        for name, inner in schema.pop("$defs", {}).items():
            self._define(name, inner)
        name = getattr(model, "__name__", "")
        if schema.get("type") != "object" or not name or "$ref" in schema:
            return schema
        self._define(name, schema)
        return {"$ref": _SCHEMAS.format(model=name)}

    def _define(self, name: str, schema: dict[str, Any]) -> None:
        known = self.defined.setdefault(name, schema)
        assert known == schema, f"two shapes have the name {name}"


def _operation(each: Endpoint, shapes: _Shapes) -> dict[str, Any]:
    doc = (each.handler.__doc__ or "").strip()
    summary, _, rest = doc.partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": each.handler.__name__,
        "tags": [each.tag or each.handler.__module__.rpartition(".")[2]],
        "summary": _summary(summary, each),
        "responses": _responses(each, shapes),
    }
    if rest:
        operation["description"] = " ".join(rest.split())
    if each.access is Access.OPEN:
        operation["security"] = [{}]
    parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", each.path)]
    parameters += [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "schema": parameter.schema,
            **({"description": parameter.meaning} if parameter.meaning else {}),
        }
        for parameter in each.query
    ]
    if parameters:
        operation["parameters"] = parameters
    if each.body is not None:
        schema = shapes.of(each.body, answered=False)
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    elif each.content:
        operation["requestBody"] = {"required": True, "content": {each.content: {}}}
    return operation


def _summary(summary: str, each: Endpoint) -> str:
    """Return the first paragraph of the handler's docstring without method and path."""
    text = " ".join(summary.split())
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        if text.startswith(f"{method} /"):
            text = text.partition(" ")[2].partition(" ")[2].lstrip("→: ")
    return text or each.handler.__name__.replace("_", " ")


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0} if name in _WHOLE else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _responses(each: Endpoint, shapes: _Shapes) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status in each.status:
        content: dict[str, Any] = {each.media: {}}
        if each.answer:
            parts = [shapes.of(shape, answered=True) for shape in each.answer]
            result = parts[0] if len(parts) == 1 else {"allOf": parts}
            if each.media == JSON:
                result = {
                    "type": "object",
                    "required": ["result"],
                    "properties": {"result": result},
                }
            content = {each.media: {"schema": result}}
        answers[str(status)] = {"description": "Success.", "content": content}
    for status, codes in _refusals(each).items():
        if status not in each.status:
            words = ", ".join(code.value for code in codes)
            answers[str(status)] = {"$ref": _REFUSED, "description": words}
    return dict(sorted(answers.items()))


def _refusals(each: Endpoint) -> dict[int, list[ErrorCode]]:
    """Return the error codes of an endpoint by HTTP status."""
    found: dict[int, list[ErrorCode]] = {}
    for code in dict.fromkeys(
        (*_EVERY, *each.codes, *(_EVERY_WRITE if each.method != "GET" else ()))
    ):
        found.setdefault(http_status(HorologError(code, "")), []).append(code)
    return found


def _error_shape() -> dict[str, Any]:
    """Return the schema of the one error shape, with all error codes."""
    words = {"type": "string"}
    fields: dict[str, Any] = {
        "code": {"type": "string", "enum": [code.value for code in ErrorCode]},
        "message": words,
        "field": words,
        "limit": words,
        "retriable": {"type": "boolean"},
    }
    error = {"type": "object", "required": list(fields), "properties": fields}
    return {"type": "object", "required": ["error"], "properties": {"error": error}}
