"""Declarations of the routes of the admin API, each above the function that answers the route.

    @endpoint("GET", "/v1/things/{name}", answer=Thing, codes=(ErrorCode.NOT_FOUND,))
    async def show_thing(request: Request) -> Response:
        \"\"\"GET /v1/things/{name}: show one thing.\"\"\"

The app serves the routes declared in `app.MODULES`, and `openapi` describes them from the same
declarations.  A function may read only what its declaration names: `query` and `read_body` assert
that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from horolog.admin.answers import JSON
from horolog.errors import ErrorCode

Handler = Callable[[Request], Awaitable[Response]]
_DECLARED = "_horolog_endpoint"


class Access(StrEnum):
    """Who may call an endpoint where there is an access file."""

    OPEN = "open"  # everyone, also without a key
    USERS = "users"  # identities with the rights that the function asks for by `answers.require`
    ADMIN = "admin"  # administrators


class Parameter(NamedTuple):
    """A query parameter: its JSON schema, and its description."""

    name: str
    schema: dict[str, Any]
    meaning: str
    required: bool = False


def text_parameter(
    name: str, meaning: str = "", *, required: bool = False, words: Iterable[str] = ()
) -> Parameter:
    """Declare a query parameter that is a text, or one of `words`."""
    schema: dict[str, Any] = {"type": "string"}
    if words:
        schema["enum"] = list(words)
    return Parameter(name, schema, meaning, required)


def integer_parameter(name: str, low: int, high: int, default: int | None = None) -> Parameter:
    """Declare a query parameter that is a whole number from `low` to `high`."""
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name, schema, "")


def flag_parameter(name: str, meaning: str = "") -> Parameter:
    """Declare a query parameter that is true or false, false by default."""
    return Parameter(name, {"type": "boolean", "default": False}, meaning)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A declared route.

    answer   types whose fields together are the result; none: the answer is not JSON
    body     model of the JSON body of a request; None: requests have none
    content  media type of a request body that is not JSON
    status   on success; several where it depends on the outcome
    codes    error codes of this route, besides those that every route has
    tag      OpenAPI tag; "": the name of the module
    """

    method: str
    path: str
    answer: tuple[Any, ...]
    handler: Handler
    body: type[BaseModel] | None
    query: tuple[Parameter, ...]
    status: tuple[int, ...]
    codes: tuple[ErrorCode, ...]
    access: Access
    media: str
    content: str
    tag: str

    def route(self) -> Route:
        """Return the Starlette route that the app serves."""
        return Route(self.path, self.handler, methods=[self.method])


def endpoint(
    method: str,
    path: str,
    *,
    answer: Any = (),
    body: type[BaseModel] | None = None,
    query: Iterable[Parameter] = (),
    status: int | tuple[int, ...] = 200,
    codes: Iterable[ErrorCode] = (),
    access: Access = Access.ADMIN,
    media: str = JSON,
    content: str = "",
    tag: str = "",
) -> Callable[[Handler], Handler]:
    """Declare a route; see `Endpoint`."""

    def declare(handler: Handler) -> Handler:
        declared = Endpoint(
            method,
            path,
            answer if isinstance(answer, tuple) else (answer,),
            handler,
            body,
            tuple(query),
            status if isinstance(status, tuple) else (status,),
            tuple(codes),
            access,
            media,
            content,
            tag,
        )
        setattr(handler, _DECLARED, declared)
        return handler

    return declare


def declared_by(handler: object) -> Endpoint | None:
    """Return the declaration of a function that answers a route; None of another object."""
    return getattr(handler, _DECLARED, None)


def endpoints_of(modules: Iterable[ModuleType]) -> list[Endpoint]:
    """Return the endpoints that these modules declare, paths with parameters last."""
    found = [
        declared
        for module in modules
        for each in vars(module).values()
        if (declared := declared_by(each)) is not None and each.__module__ == module.__name__
    ]
    paths = {(each.method, each.path) for each in found}
    assert len(paths) == len(found), "a path is declared twice"
    return sorted(found, key=lambda each: "{" in each.path)
