"""An access file for tests, and the signatures that clients put on requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

ACCESS = """
[identities.app]
secret = "app-secret"
topics = { "orders" = "PUB|SUB", "out-*" = "PUB", "in-*" = "SUB", "in-secret" = "DENY" }
groups = { "app-*" = "SUB" }

[identities.operator]
secret = "operator-secret"
token = "operator-token"
admin = true

[identities.elsewhere]
secret = "elsewhere-secret"
topics = { "*" = "ANY" }
groups = { "*" = "SUB" }
addresses = ["10.0.0.0/8"]
"""
SECRETS = {
    "app": "app-secret",
    "operator": "operator-secret",
    "elsewhere": "elsewhere-secret",
}
DATE = "20260311T101500Z"


def access_file(folder: Path, text: str = ACCESS) -> Path:
    """Write an access file that only its owner can read, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "access.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def grpc_headers(access_key: str, secret: str = "", *, upper: bool = True) -> list[tuple[str, str]]:
    """Return the headers of a 5.x client, signed with its own secret or the given one."""
    key = (secret or SECRETS[access_key]).encode()
    signature = hmac.new(key, DATE.encode(), hashlib.sha1).hexdigest()
    signed_as = signature.upper() if upper else signature
    return [
        ("x-mq-client-id", f"client-of-{access_key}"),
        ("x-mq-language", "JAVA"),
        ("x-mq-date-time", DATE),
        (
            "authorization",
            f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signed_as}",
        ),
    ]


def signed(
    fields: dict[str, str], body: bytes, access_key: str, secret: str = ""
) -> dict[str, str]:
    """Return the fields of a 4.x client's request with its key and signature."""
    named = {**fields, "AccessKey": access_key}
    content = "".join(named[name] for name in sorted(named)).encode() + body
    key = (secret or SECRETS[access_key]).encode()
    digest = hmac.new(key, content, hashlib.sha1).digest()
    return {**named, "Signature": base64.b64encode(digest).decode()}
