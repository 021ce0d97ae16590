"""The OpenAPI document of a dialect, out of its tables."""

from http import HTTPStatus
from typing import Any

from onward.dialects.describe import object_schema
from onward.dialects.schema import Auth, Dialect, FailureShape, HeaderValue, Surface

_SCHEMES: dict[Auth, dict[str, str]] = {
    Auth.BEARER: {"type": "http", "scheme": "bearer"},
    Auth.X_API_KEY: {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

_KEY = {"type": "string", "minLength": 1, "maxLength": 255}


def openapi(dialect: Dialect, mount: str, version: str) -> dict[str, Any]:
    """The document that stands at ``{mount}/openapi.json``."""
    paths: dict[str, Any] = {}
    statuses = sorted({row.status for row in dialect.errors.values()})
    for surface in dialect.surfaces.values():
        operation = _operation(dialect, surface, statuses)
        if surface.name in dialect.passed:
            _add_providers(operation, dialect, dialect.passed[surface.name])
        paths.setdefault(surface.path, {})[surface.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Onward: {dialect.title}", "version": version, "description": dialect.about},
        "servers": [{"url": mount}],
        "security": [{auth.name: []} for auth in dialect.auth] + [{}],
        "paths": paths,
        "components": {
            "securitySchemes": {auth.name: _SCHEMES[auth] for auth in dialect.auth},
            "schemas": {"Error": _error_schema(dialect), **_shapes(dialect)},
            "responses": {f"Error{status}": _error(dialect, status) for status in statuses},
        },
    }


def _operation(dialect: Dialect, surface: Surface, statuses: list[int]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if any(field.name == "stream" for field in surface.fields):
        content["text/event-stream"] = {"schema": {"type": "string"}}
    operation: dict[str, Any] = {
        "operationId": surface.name,
        "summary": surface.about,
        "responses": {
            "200": {"description": "The answer.", **_headers(dialect, failed=False), "content": content},
            **{str(status): _failure(dialect, surface, status) for status in statuses},
        },
    }
    parameters: list[dict[str, Any]] = []
    if "{model}" in surface.path:
        parameters.append({"name": "model", "in": "path", "required": True, "schema": {"type": "string"}})
    if surface.fields:
        parameters += [
            {"name": header.name, "in": "header", "required": False, "schema": _KEY}
            for header in dialect.headers
            if header.value is HeaderValue.IDEMPOTENCY_KEY
        ]
    if parameters:
        operation["parameters"] = parameters
    if surface.fields:
        schema = object_schema(surface.fields)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _add_providers(operation: dict[str, Any], dialect: Dialect, passed: Surface) -> None:
    """What is different where a provider answers."""
    read = ", ".join(f"`{field.name}`" for field in passed.fields)
    operation["requestBody"]["description"] = (
        f"The fields of models that are served here. Where a provider answers, only {read} are read, and the "
        "body goes on as it is."
    )
    rows = dialect.errors.values()
    if any(row.passes_status for row in rows):
        any_error = {"$ref": f"#/components/responses/Error{min(row.status for row in rows)}"}
        operation["responses"] |= {"4XX": any_error, "5XX": any_error}


def _failure(dialect: Dialect, surface: Surface, status: int) -> dict[str, Any]:
    """The response of a status that tells of a failure."""
    if surface.failures is None:
        return {"$ref": f"#/components/responses/Error{status}"}
    schema = {"$ref": f"#/components/schemas/{surface.name.capitalize()}Error"}
    return {
        "description": surface.failures.type_of(status),
        **_headers(dialect, failed=True),
        "content": {"application/json": {"schema": schema}},
    }


def _shapes(dialect: Dialect) -> dict[str, Any]:
    """The schemas of failures that surfaces write in a shape of their own."""
    return {
        f"{surface.name.capitalize()}Error": _shape_schema(surface.failures)
        for surface in dialect.surfaces.values()
        if surface.failures is not None
    }


def _shape_schema(shape: FailureShape) -> dict[str, Any]:
    types = sorted({*shape.types.values(), shape.other_4xx, shape.other_5xx})
    error = {
        "type": "object",
        "required": ["type", "message"],
        "properties": {"type": {"enum": types}, "message": {"type": "string"}},
    }
    return {
        "type": "object",
        "required": ["type", "error", "request_id"],
        "properties": {"type": {"const": "error"}, "error": error, "request_id": {"type": "string"}},
    }


def _error_schema(dialect: Dialect) -> dict[str, Any]:
    rows = dialect.errors.values()
    every: dict[str, Any] = {
        "message": {"type": "string"},
        "type": {"enum": sorted({row.type for row in rows})},
        "param": {"type": ["string", "null"]},
        "code": {"enum": sorted({row.code for row in rows if row.code})},
    }
    keys = dialect.response.error_keys
    error = {
        "type": "object",
        "required": list(keys),
        "properties": {key: every[key] for key in keys},
    }
    return {"type": "object", "required": ["error"], "properties": {"error": error}}


def _headers(dialect: Dialect, *, failed: bool) -> dict[str, Any]:
    """The headers of the dialect's answers, if it names any."""
    named = {
        header.name: {"description": f"The {header.value}.", "schema": {"type": "string"}}
        for header in dialect.headers
        if header.on_failures or not failed
    }
    return {"headers": named} if named else {}


def _error(dialect: Dialect, status: int) -> dict[str, Any]:
    codes = sorted({str(row.code) for row in dialect.errors.values() if row.status == status})
    known = {item.value for item in HTTPStatus}
    phrase = HTTPStatus(status).phrase if status in known else "Cancelled"
    return {
        "description": f"{phrase}: {', '.join(codes)}",
        **_headers(dialect, failed=True),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
