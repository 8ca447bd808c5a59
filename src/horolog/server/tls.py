"""TLS for connections whose first byte asks for it: converts records, and leaves the socket alone.

A certificate comes from files (`--tls-cert`, `--tls-key`).  When none is configured, the process
makes one and signs it itself: the RocketMQ clients that insist on TLS do not check it.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from horolog.access.exposed import warn_if_exposed
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import TLS_HANDSHAKE_BYTES, TLS_HANDSHAKE_MAX, TLS_RECORD_BYTES
from horolog.places import is_irregular

_log = logging.getLogger("horolog.doors")
HANDSHAKE = 0x16  # first byte of a TLS connection
_SIGNED_DAYS = 3_650
_HEAD_BYTES = 5  # of a record
_PIECE = 16_384  # bytes converted at once, a full record: OpenSSL's memory files never shrink


class Tls:
    """The server's end of one TLS connection: converts records to plain bytes and back.

    established  the handshake is done
    ended        the peer has broken or ended the connection: nothing more comes from it
    held         bytes of memory that the handshake, or part of a record, counts for; else 0
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = self.ended = False
        self.held = TLS_HANDSHAKE_BYTES
        self._received = 0  # bytes of the handshake
        self._head = bytearray()  # of a record, as long as it is not complete
        self._missing = 0  # bytes of a record, after its head
        self._records: list[bytes] = []  # to be written
        self._early: list[bytes] = []  # plain bytes written before the handshake was done

    def decrypt(self, records: bytes) -> bytes:
        """Return the plain bytes of records, the last ones if `ended`; call `to_write` next."""
        found: list[bytes] = []
        view = memoryview(records)
        self._follow(view)
        for start in range(0, len(view), _PIECE):
            try:
                self._decrypt(view[start : start + _PIECE], found)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                self.ended = True
            break
        if self.established:
            self.held = TLS_RECORD_BYTES if self._head or self._missing else 0
        return b"".join(found)

    def _follow(self, records: memoryview) -> None:
        """Follow records, which are {type u8, version u16, size u16} and `size` bytes, to the end.

        OpenSSL does not tell that it holds a part of a record.
        """
        at = min(self._missing, len(records))
        self._missing -= at
        while at < len(records):
            part = records[at : at + _HEAD_BYTES - len(self._head)]
            self._head += part
            at += len(part)
            if len(self._head) == _HEAD_BYTES:
                at += int.from_bytes(self._head[3:], "big")
                self._head.clear()
                self._missing = max(0, at - len(records))

    def _decrypt(self, records: memoryview, found: list[bytes]) -> None:
        self._incoming.write(records)
        if not self.established:
            self._shake_hands(len(records))
        while piece := self._object.read(_PIECE):
            found.append(piece)
        self.ended = True  # the peer closed the connection properly

    def _shake_hands(self, received: int) -> None:
        self._received += received
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._received > TLS_HANDSHAKE_MAX:
                raise ssl.SSLError("the handshake is too long") from None
            raise
        self.established = True
        early = b"".join(self._early)
        self._early.clear()
        self.encrypt(early)

    def encrypt(self, plain: bytes) -> None:
        """Convert plain bytes into records, for `to_write`."""
        if not self.established:
            self._early.append(plain)
            return
        view = memoryview(plain)
        with suppress(ssl.SSLError):  # the connection is broken
            for start in range(0, len(view), _PIECE):
                self._object.write(view[start : start + _PIECE])
                self._records.append(self._outgoing.read())

    def to_write(self) -> bytes:
        """Return the records to be written to the peer."""
        if self._outgoing.pending:
            self._records.append(self._outgoing.read())
        records = b"".join(self._records)
        self._records.clear()
        return records


class Certificate:
    """The certificate of connections that ask for TLS: ALPN `h2`, TLS 1.2 or newer.

    certificate, key  PEM files; CONFIG if they cannot be used.  None: one is made when needed
    host              name or address for which a certificate is made
    """

    def __init__(self, certificate: Path | None, key: Path | None, host: str) -> None:
        if key is not None and certificate is None:
            raise refused("--tls-key", "needs --tls-cert as well", code=ErrorCode.CONFIG)
        self._files = (certificate, key)
        self._host = host
        self._made: ssl.SSLContext | None = None
        self._valid_s: tuple[float, float] | None = None
        if certificate is not None:
            self._made = self._load(certificate, key)
            self._valid_s = _validity(certificate)

    @property
    def ends_s(self) -> float | None:
        """When the file's certificate ends, epoch seconds; None without a file."""
        return None if self._valid_s is None else self._valid_s[1]

    def invalidity(self, now_s: float) -> str:
        """Return why the file's certificate is not valid now, in a sentence; "" if it is valid."""
        if self._valid_s is None:
            return ""
        begins_s, ends_s = self._valid_s
        if begins_s <= now_s < ends_s:
            return ""
        bound = f"ended on {_day(ends_s)}" if now_s >= ends_s else f"begins on {_day(begins_s)}"
        return f"the certificate of {self._files[0]} {bound}; clients that check it do not connect"

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context of the next connection.

        Raises OSError if the certificate that the process made could not be loaded.
        """
        if self._made is None:
            made = _new_context()
            _load_own(made, self._host)
            self._made = made
        return self._made

    def reload(self) -> bool:
        """Read the files again, for later connections; return whether there are files.

        Raise CONFIG if they cannot be used; the old certificate stays.  The method runs in the
        loop, so only regular files are read: the end of a pipe may never come.
        """
        certificate, key = self._files
        if certificate is None:
            return False
        for path in (certificate, key or certificate):
            if is_irregular(path):
                raise _unusable(certificate, key, f"{path} is not a regular file")
        self._made = self._load(certificate, key)
        self._valid_s = _validity(certificate)
        return True

    def warn(self) -> None:
        """Warn if other users can read the private key, or the certificate is not valid now."""
        if why := self.invalidity(time.time()):
            _log.warning("%s", why)
        certificate, key = self._files
        if (path := key or certificate) is not None:
            warn_if_exposed(path)

    @staticmethod
    def _load(certificate: Path, key: Path | None) -> ssl.SSLContext:
        context = _new_context()
        try:
            context.load_cert_chain(certificate, key, lambda: _no_pass_phrase(certificate, key))
        except (OSError, ssl.SSLError) as error:
            raise _unusable(certificate, key, _reason(certificate, key, error)) from error
        return context


def _no_pass_phrase(certificate: Path, key: Path | None) -> str:
    """Refuse a key with a pass phrase: OpenSSL would ask on the terminal, and block the broker."""
    raise _unusable(certificate, key, "the key has a pass phrase; write it without one")


def _reason(certificate: Path, key: Path | None, error: OSError) -> str:
    """Return why OpenSSL refuses the files; its own `[SSL] PEM lib` names neither file nor fault."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key belongs to another certificate"
        for path, what in ((certificate, b"CERTIFICATE"), (key or certificate, b"PRIVATE KEY")):
            with suppress(OSError):
                if not is_irregular(path) and what + b"-----" not in path.read_bytes():
                    return f"there is no {what.decode()} (PEM) in {path}"
    return error.strerror or str(error)


def _unusable(certificate: Path, key: Path | None, why: str) -> HorologError:
    return refused(
        "--tls-cert",
        f"{certificate} with key {key or certificate} cannot be used: {why}",
        code=ErrorCode.CONFIG,
    )


def _validity(certificate: Path) -> tuple[float, float] | None:
    """Return from when until when a file's first certificate, the server's own, is valid.

    None: its validity cannot be read.
    """
    from cryptography import x509  # large, as below

    with suppress(OSError, ValueError):
        own = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        return own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
    return None


def _day(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d")


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context


def _load_own(context: ssl.SSLContext, host: str) -> None:
    certificate, key = self_signed(host)
    # The ssl module reads files only; a memory file needs no disk, which may be full or read-only.
    with os.fdopen(os.memfd_create("own.pem"), "wb") as chain:
        chain.write(key + certificate)
        chain.flush()
        context.load_cert_chain(f"/proc/self/fd/{chain.fileno()}")


def self_signed(host: str) -> tuple[bytes, bytes]:
    """Return a new certificate and its private key, as PEM."""
    # cryptography is large, and needed only where no certificate is configured.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "horolog")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    addresses = {ip_address("127.0.0.1"), ip_address("::1")}
    try:
        addresses.add(ip_address(host))
    except ValueError:
        names.append(x509.DNSName(host))
    names += [x509.IPAddress(address) for address in sorted(addresses, key=str)]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
