"""How a route of the admin API is declared: once, above the function that answers it.

    @endpoint("GET", "/v1/things/{name}", answer=Thing, codes=(ErrorCode.NOT_FOUND,))
    async def show_thing(request: Request) -> Response:
        \"\"\"GET /v1/things/{name}: one thing.\"\"\"

The app serves what is declared in the modules that `app.MODULES` lists, and `openapi` describes it from the same
declaration.  What a function reads of a request must be what it declares: `query` and `read_body` assert that.
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

from horolog.errors import ErrorCode

JSON = "application/json"
Handler = Callable[[Request], Awaitable[Response]]
_DECLARED = "_horolog_endpoint"


class Access(StrEnum):
    """Who may ask, where there is an access file."""

    OPEN = "open"  # everybody, also without a key
    USERS = "users"  # whoever has the rights that the function asks for by `answers.allow`
    ADMIN = "admin"  # administrators


class Parameter(NamedTuple):
    """A query parameter: its JSON schema, and what it is for."""

    name: str
    schema: dict[str, Any]
    meaning: str = ""
    required: bool = False


def text(
    name: str, meaning: str = "", *, required: bool = False, words: Iterable[str] = ()
) -> Parameter:
    """A text, or one of these words."""
    schema: dict[str, Any] = {"type": "string"}
    if words:
        schema["enum"] = list(words)
    return Parameter(name, schema, meaning, required)


def whole(name: str, low: int, high: int, default: int | None = None) -> Parameter:
    """A whole number."""
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name, schema, "")


def flag(name: str, meaning: str = "") -> Parameter:
    """true or false, false by default."""
    return Parameter(name, {"type": "boolean", "default": False}, meaning)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route.

    answer   shapes whose fields together are the result; none: the answer is no JSON
    body     of the request, as JSON; None: it has none
    content  media type of a request that is no JSON
    status   of success; several where it depends
    codes    of refusals that are its own, besides those that every route has
    tag      what OpenAPI puts it under; "": the name of its module
    """

    method: str
    path: str
    answer: tuple[Any, ...]
    handler: Handler
    body: type[BaseModel] | None = None
    query: tuple[Parameter, ...] = ()
    status: tuple[int, ...] = (200,)
    codes: tuple[ErrorCode, ...] = ()
    access: Access = Access.ADMIN
    media: str = JSON
    content: str = ""
    tag: str = ""

    def route(self) -> Route:
        """The route that the app serves."""
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
    """What stands above a function, if it answers a route."""
    return getattr(handler, _DECLARED, None)


def endpoints_of(modules: Iterable[ModuleType]) -> list[Endpoint]:
    """All that these modules declare, in their order; fixed paths before those that have a parameter there."""
    found = [
        declared
        for module in modules
        for each in vars(module).values()
        if (declared := declared_by(each)) is not None and each.__module__ == module.__name__
    ]
    paths = {(each.method, each.path) for each in found}
    assert len(paths) == len(found), "a path is declared twice"
    return sorted(found, key=lambda each: "{" in each.path)
