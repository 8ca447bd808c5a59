"""Authentication of requests: the only code that compares signatures, tokens and secrets.

gRPC      `authorization: MQv2-HMAC-SHA1 Credential=<key>, SignedHeaders=x-mq-date-time,
          Signature=<hex>`, the HMAC-SHA1 of the header `x-mq-date-time`; all requests of a client
          within one second have the same header
remoting  the fields AccessKey and Signature: base64 of the HMAC-SHA1 of all other values, in the
          order of their names, and the body
HTTP      `Authorization: Basic` with key and secret, or `Bearer` with a token

A signature proves who sends, not when: as in RocketMQ the time in it is not compared with a clock,
so anyone who can read the traffic can repeat it.  TLS protects it from being read.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from horolog.access.exposed import warn_if_exposed
from horolog.access.file import Access, AccessFileError, read_access
from horolog.access.rules import Identity, unauthorized
from horolog.places import is_irregular

_log = logging.getLogger("horolog.access")
ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
ADDED_LATER = "_UNIQUE_KEY_QUERY"  # old clients add this field after they have signed
_VERIFIED_MAX = 4_096  # gRPC signatures that are kept: a client has one a second
_UNUSED_SECRET = b"a secret that nobody has"


class Guard:
    """The identities of an access file; `reload` reads the file again.

    unsigned_routes  whether 4.x clients get routes without a key
    """

    def __init__(self, path: Path) -> None:
        """Read the access file; CONFIG if it cannot be used."""
        self._path = path
        self._use(read_access(path))

    def _use(self, access: Access) -> None:
        self._identities = identities = access.identities
        self.unsigned_routes = access.unsigned_routes
        self._by_token = {each.token: each for each in identities.values() if each.token}
        self._verified: dict[tuple[bytes, bytes], Identity] = {}
        for path in (self._path, *access.secret_files):
            warn_if_exposed(path)

    def reload(self) -> None:
        """Read the file again, for later requests; CONFIG if unusable: the old content stays.

        Runs in the loop, so only a regular file is read: the end of a pipe may never come.
        """
        if is_irregular(self._path):
            raise AccessFileError(self._path, "", "is not a regular file")
        self._use(read_access(self._path))
        _log.info("access file read again identities=%d", len(self._identities))

    def __len__(self) -> int:
        return len(self._identities)

    def known_now(self, identity: Identity) -> Identity | None:
        """Return an identity that signed before, with its present rights.

        Returns None if its key is gone, or has another secret.
        """
        found = self._identities.get(identity.access_key)
        return found if found is not None and found.secret == identity.secret else None

    # --- gRPC -------------------------------------------------------------------------------------

    def signer_of_headers(self, authorization: bytes, date_time: bytes, address: str) -> Identity:
        """Return the identity that signed a gRPC request; UNAUTHORIZED if none did."""
        key = (authorization, date_time)
        identity = self._verified.get(key)
        if identity is None:
            identity = self._verify_headers(authorization, date_time)
            if len(self._verified) >= _VERIFIED_MAX:
                self._verified.clear()
            self._verified[key] = identity
        if identity.networks:
            identity.check_address(address)
        return identity

    def _verify_headers(self, authorization: bytes, date_time: bytes) -> Identity:
        if not authorization:
            raise unauthorized("the header is missing; requests must be signed")
        if not date_time:
            raise unauthorized("the header is missing", "x-mq-date-time")
        _, _, rest = authorization.decode("latin-1").partition(" ")
        pairs = [pair.strip().partition("=") for pair in rest.split(",")]
        fields = {name: value for name, _, value in pairs}
        access_key = fields.get("Credential", "").partition("/")[0]
        if not access_key:
            raise unauthorized("no access key in Credential=")
        try:
            signature = bytes.fromhex(fields.get("Signature", ""))
        except ValueError:
            signature = b""
        return self._verify(access_key, [date_time], signature)

    # --- remoting ---------------------------------------------------------------------------------

    def signer_of_fields(
        self,
        fields: Mapping[str, str],
        body: bytes,
        address: str,
        unsent: Mapping[str, str] | None,
    ) -> Identity:
        """Return the identity that signed a request of a 4.x client; UNAUTHORIZED if none did.

        Some clients sign other fields than they send: without ADDED_LATER, or with `unsent` added.
        """
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            raise unauthorized("missing; requests must be signed", ACCESS_KEY)
        try:
            signature = base64.b64decode(fields.get(SIGNATURE, ""), validate=True)
        except (binascii.Error, ValueError):
            signature = b""
        names = sorted(fields.keys() - {SIGNATURE})
        signed = [_signed_content(names, fields, body)]
        if ADDED_LATER in fields:
            signed.append(
                _signed_content([name for name in names if name != ADDED_LATER], fields, body)
            )
        if unsent:
            signed.append(_signed_content(sorted({*names, *unsent}), {**fields, **unsent}, body))
        identity = self._verify(access_key, signed, signature, ACCESS_KEY)
        if identity.networks:
            identity.check_address(address)
        return identity

    def signer_of_all(
        self, access_key: str, signed: Sequence[bytes], signatures: Sequence[bytes], address: str
    ) -> Identity | None:
        """Return the identity that signed all of these; None if one must be checked by itself."""
        identity = self._identities.get(access_key)
        if identity is None:
            return None
        identity.check_address(address)
        secret, digest, same = identity.secret, hmac.digest, hmac.compare_digest
        for content, signature in zip(signed, signatures, strict=True):
            if not same(
                binascii.b2a_base64(digest(secret, content, "sha1"), newline=False), signature
            ):
                return None
        return identity

    def _verify(
        self,
        access_key: str,
        signed: Iterable[bytes],
        signature: bytes,
        field: str = "authorization",
    ) -> Identity:
        """Return the identity of the key, if the signature is right for one of `signed`."""
        identity = self._identities.get(access_key)
        secret = identity.secret if identity is not None else _UNUSED_SECRET
        right = any(
            hmac.compare_digest(hmac.digest(secret, each, "sha1"), signature) for each in signed
        )
        if identity is None or not right:
            raise _failed(access_key, field)
        return identity

    # --- HTTP -------------------------------------------------------------------------------------

    def identity_of_authorization(self, authorization: str, address: str) -> Identity:
        """Return the identity of an HTTP request's key and secret, or token; or UNAUTHORIZED."""
        scheme, _, credential = authorization.partition(" ")
        credential = credential.strip()
        if scheme.lower() == "bearer":
            identity = self._identity_of_token(credential.encode())
        elif scheme.lower() == "basic":
            identity = self._identity_of_secret(credential)
        else:
            raise unauthorized("missing; `Basic` with access key and secret, or `Bearer`")
        identity.check_address(address)
        return identity

    def _identity_of_token(self, token: bytes) -> Identity:
        found = None
        for known, identity in self._by_token.items():  # all of them: timing reveals nothing
            if hmac.compare_digest(known.encode(), token):
                found = identity
        if found is None:
            raise unauthorized("the token is nobody's")
        return found

    def _identity_of_secret(self, encoded: str) -> Identity:
        try:
            pair = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise unauthorized("no base64 of KEY:SECRET") from None
        name, _, secret = pair.partition(b":")
        access_key = name.decode("utf-8", "replace")
        identity = self._identities.get(access_key)
        right = hmac.compare_digest(identity.secret if identity else _UNUSED_SECRET, secret)
        if identity is None or not right:
            raise _failed(access_key, "authorization")
        return identity


def _signed_content(names: list[str], fields: Mapping[str, str], body: bytes) -> bytes:
    return "".join([fields[name] for name in names]).encode("utf-8", "surrogatepass") + body


def _failed(access_key: str, field: str) -> Exception:
    return unauthorized(
        f"check signature failed: {access_key[:64]!r} is not known, or its secret is another one",
        field,
    )
