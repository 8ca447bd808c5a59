"""The access file: TOML that names identities, their secrets and their rights.

    unsigned_routes = true               # for clients that do not sign route requests; comes first

    [identities.orders-app]
    secret = "9cf2a1e07b5d4c38"
    topics = { "orders" = "PUB|SUB", "audit-*" = "PUB" }
    groups = { "orders-*" = "SUB" }

    [identities.operator]
    secret_file = "operator.secret"      # beside this file; its first line
    token = "c1d0c4c8f2a94b6e"           # for the admin API, as Authorization: Bearer
    admin = true
    addresses = ["127.0.0.1", "10.1.0.0/16"]

Every error names the identity and the key, and no error contains a secret.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, NamedTuple

from horolog.access.rules import RIGHTS, Identity, Patterns
from horolog.errors import ErrorCode, HorologError
from horolog.limits import ACCESS_KEY_MAX, ACCESS_SECRET_MIN
from horolog.places import is_irregular
from horolog.toml_file import read_toml

_KEYS = {"secret", "secret_file", "token", "admin", "topics", "groups", "addresses"}
_UNSIGNED_ROUTES = "unsigned_routes"
_NOT_IN_KEYS = set("/,=: \t\r\n\"'")  # separators in headers


class AccessFileError(HorologError):
    """An access file that cannot be used; the field of the error is `--access`."""

    def __init__(self, path: Path, where: str, why: str) -> None:
        place = f"{path}: {where}" if where else str(path)
        super().__init__(ErrorCode.CONFIG, f"--access: {place}: {why}", field="--access")


class Access(NamedTuple):
    """The content of an access file.

    identities        by their access keys
    unsigned_routes   whether 4.x clients get routes without a key, as from RocketMQ's name server
    secret_files      files from which secrets of the identities were read
    """

    identities: dict[str, Identity]
    unsigned_routes: bool = False
    secret_files: tuple[Path, ...] = ()


def read_access(path: Path) -> Access:
    """Read an access file; CONFIG names what is wrong."""
    table = _read(path)
    unknown = sorted(set(table) - {"identities", _UNSIGNED_ROUTES})
    if unknown:
        raise AccessFileError(
            path, unknown[0], f"unknown; there is only [identities.NAME] and {_UNSIGNED_ROUTES}"
        )
    unsigned_routes = table.get(_UNSIGNED_ROUTES, False)
    if not isinstance(unsigned_routes, bool):
        raise AccessFileError(path, _UNSIGNED_ROUTES, "true or false is needed")
    identities = _identities(path, table)
    kept_apart = [
        each["secret_file"] for each in table["identities"].values() if "secret_file" in each
    ]
    return Access(identities, unsigned_routes, tuple(path.parent / name for name in kept_apart))


def _identities(path: Path, table: dict[str, Any]) -> dict[str, Identity]:
    named = table.get("identities")
    if not isinstance(named, dict) or not named:
        raise AccessFileError(path, "identities", "none; without one nobody could connect")
    found = {}
    tokens: set[str] = set()
    for access_key, fields in named.items():
        identity = _identity(path, access_key, fields)
        if identity.token and identity.token in tokens:
            raise AccessFileError(path, f"identities.{access_key}.token", "another one has it too")
        tokens.add(identity.token)
        found[access_key] = identity
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as error:
        raise AccessFileError(path, "", f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise AccessFileError(path, "", str(error)) from None


def _identity(path: Path, access_key: str, fields: object) -> Identity:
    where = f"identities.{access_key}"
    if not isinstance(fields, dict):
        raise AccessFileError(path, where, "a table is needed")
    if not access_key or len(access_key.encode()) > ACCESS_KEY_MAX:
        raise AccessFileError(path, where, f"1 to {ACCESS_KEY_MAX} bytes are allowed for the name")
    if not access_key.isascii() or not access_key.isprintable() or _NOT_IN_KEYS & set(access_key):
        raise AccessFileError(path, where, "letters, digits and -_.@ are for names")
    for name in fields:
        if name not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            raise AccessFileError(path, f"{where}.{name}", f"unknown; there are {known}")
    is_admin = fields.get("admin", False)
    if not isinstance(is_admin, bool):
        raise AccessFileError(path, f"{where}.admin", "true or false is needed")
    return Identity(
        access_key,
        _secret(path, where, fields).encode(),
        _text(path, f"{where}.token", fields["token"]) if "token" in fields else "",
        is_admin,
        _patterns(path, f"{where}.topics", fields.get("topics", {})),
        _patterns(path, f"{where}.groups", fields.get("groups", {})),
        _networks(path, f"{where}.addresses", fields.get("addresses", [])),
    )


def _secret(path: Path, where: str, fields: dict[str, Any]) -> str:
    if ("secret" in fields) == ("secret_file" in fields):
        raise AccessFileError(path, f"{where}.secret", "give either secret or secret_file")
    if "secret" in fields:
        return _text(path, f"{where}.secret", fields["secret"])
    where = f"{where}.secret_file"
    name = fields["secret_file"]
    if not isinstance(name, str) or not name:
        raise AccessFileError(path, where, "the name of a file is needed")
    file = path.parent / name
    if is_irregular(file):
        raise AccessFileError(path, where, f"{name} is not a regular file")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a name with a NUL
        why = getattr(error, "strerror", None) or "no text"
        raise AccessFileError(path, where, f"{name} cannot be read: {why}") from None
    return _text(path, where, lines[0].strip() if lines else "")


def _text(path: Path, where: str, value: object) -> str:
    """Check that a secret or token is long enough not to be guessed at once; return it."""
    if not isinstance(value, str) or len(value) < ACCESS_SECRET_MIN:
        raise AccessFileError(path, where, f"at least {ACCESS_SECRET_MIN} characters are needed")
    return value


def _patterns(path: Path, where: str, granted: object) -> Patterns:
    if not isinstance(granted, dict):
        raise AccessFileError(path, where, 'a table such as { "orders-*" = "PUB|SUB" } is needed')
    found: dict[str, int] = {}
    for name, words in granted.items():
        if "*" in name[:-1] or not name:
            raise AccessFileError(path, f"{where}.{name}", "a * is allowed at the end only")
        word = words.upper().replace(" ", "") if isinstance(words, str) else ""
        if word not in RIGHTS:
            raise AccessFileError(
                path, f"{where}.{name}", f"{words!r} is no right; there are {', '.join(RIGHTS)}"
            )
        found[name] = RIGHTS[word]
    return Patterns(found)


def _networks(path: Path, where: str, addresses: object) -> tuple[IPv4Network | IPv6Network, ...]:
    if not isinstance(addresses, list):
        raise AccessFileError(path, where, 'a list such as ["127.0.0.1", "10.0.0.0/8"] is needed')
    try:
        return tuple(ip_network(each) for each in addresses)
    except (ValueError, TypeError) as error:
        raise AccessFileError(path, where, str(error)) from None
