"""TLS on connections whose first byte asks for it: the records are turned here, the socket stays the door's.

A certificate comes from files (`--tls-cert`, `--tls-key`); when none is configured one is made for this process, and
signed by itself: the RocketMQ clients that insist on TLS do not check it.
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
from horolog.places import is_irregular

_log = logging.getLogger("horolog.doors")
HANDSHAKE = 0x16  # first byte of a TLS connection
_SIGNED_DAYS = 3_650
_READ_BYTES = 65_536


class Tls:
    """The server's end of one TLS connection: records in, plain bytes out, and the other way round.

    established  whether the handshake is done
    ended        whether the peer has broken, or ended, the connection: nothing more comes from it
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = self.ended = False
        self._early: list[bytes] = []  # said before the handshake was done

    def take(self, records: bytes) -> bytes:
        """Plain bytes of what has come, the last ones if `ended`; `to_write` may be owed after it."""
        self._incoming.write(records)
        found = []
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
                for plain in self._early:
                    self._object.write(plain)
                self._early.clear()
            while piece := self._object.read(_READ_BYTES):
                found.append(piece)
            self.ended = True  # in due form
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.ended = True
        return b"".join(found)

    def give(self, plain: bytes) -> None:
        """Turn plain bytes into records."""
        if self.established:
            with suppress(ssl.SSLError):  # of a connection that is broken
                self._object.write(plain)
        else:
            self._early.append(plain)

    def to_write(self) -> bytes:
        """Records that are owed to the peer."""
        return self._outgoing.read() if self._outgoing.pending else b""


class Certificate:
    """What connections that ask for TLS get: ALPN `h2`, TLS 1.2 or newer.

    certificate, key  PEM files; CONFIG if they cannot be used.  Without, one is made when it is first needed
    host              name or address that a certificate made here is for
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
        """When the file's certificate ends, epoch; None if there is none."""
        return None if self._valid_s is None else self._valid_s[1]

    def invalidity(self, now_s: float) -> str:
        """Why clients that check the file's certificate do not connect now; "" if its time is no reason."""
        if self._valid_s is None:
            return ""
        begins_s, ends_s = self._valid_s
        if begins_s <= now_s < ends_s:
            return ""
        bound = f"ended on {_day(ends_s)}" if now_s >= ends_s else f"begins on {_day(begins_s)}"
        return f"the certificate of {self._files[0]} {bound}; clients that check it do not connect"

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection.  OSError: the one made here could not be loaded."""
        if self._made is None:
            made = _new_context()
            _load_own(made, self._host)
            self._made = made
        return self._made

    def reload(self) -> bool:
        """Read the files again, for connections to come; whether there are any.  CONFIG: the old ones stay.

        It runs in the loop, so only regular files are read: the end of a pipe may never come.
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
        """Log it if other users of the machine can read the private key, and if the certificate is not valid now."""
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
            raise _unusable(certificate, key, error.strerror or str(error)) from error
        return context


def _no_pass_phrase(certificate: Path, key: Path | None) -> str:
    """Refuse a key that needs one: OpenSSL would ask for it on the terminal, and the broker stand still meanwhile."""
    raise _unusable(certificate, key, "the key has a pass phrase; write it without one")


def _unusable(certificate: Path, key: Path | None, why: str) -> HorologError:
    return refused(
        "--tls-cert",
        f"{certificate} with key {key or certificate} cannot be used: {why}",
        code=ErrorCode.CONFIG,
    )


def _validity(certificate: Path) -> tuple[float, float] | None:
    """From when until when the first certificate of a file is valid: the server's own.  None: it cannot be told."""
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
    # The ssl module reads files only; this one needs no disk, which may be full or read-only.
    with os.fdopen(os.memfd_create("own.pem"), "wb") as chain:
        chain.write(key + certificate)
        chain.flush()
        context.load_cert_chain(f"/proc/self/fd/{chain.fileno()}")


def self_signed(host: str) -> tuple[bytes, bytes]:
    """Certificate and private key, as PEM."""
    # Large, and needed only where no certificate is configured.
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
