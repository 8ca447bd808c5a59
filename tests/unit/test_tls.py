"""TLS and plaintext on one port: by the first byte, with a certificate of ours or of files, read again on demand."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.http2 import frames
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.frames import Type, frame
from horolog.server.call import Call
from horolog.server.door import Door
from horolog.server.http2_link import Http2Link
from horolog.server.intake import Intake
from horolog.server.ports import bind
from horolog.server.tls import Certificate, self_signed

DEADLINE_S = 20
GREETING = frames.PREFACE + frames.settings({})


class Nobody:
    """Handles no call: these tests are of connections."""

    streaming: frozenset[bytes] = frozenset()

    def calls_received(self, calls: Sequence[tuple[Call, bytes]]) -> None: ...
    def stream_opened(self, call: Call) -> None: ...
    def message_received(self, call: Call, message: bytes) -> None: ...
    def input_ended(self, call: Call) -> None: ...


def with_door(
    certificate: Certificate | None,
    story: Callable[[int], Awaitable[None]],
    connections: int = 10,
    **looks: int,
) -> None:
    async def begin_and_end() -> None:
        listener = bind("127.0.0.1", 0, "--grpc-port")
        door = Door(
            lambda door: Http2Link(door, Nobody(), Limits()),
            listener,
            intake=Intake(connections),
            log=logging.getLogger("horolog.grpc"),
            certificate=certificate,
            **looks,
        )
        port = await door.start()
        try:
            await story(port)
        finally:
            await door.stop(0)

    asyncio.run(asyncio.wait_for(begin_and_end(), DEADLINE_S))


def files(place: Path, name: str) -> tuple[Path, Path, str]:
    """A certificate and its key as files, and its text."""
    certificate, key = self_signed(name)
    paths = place / f"{name}.crt", place / f"{name}.key"
    paths[0].write_bytes(certificate)
    paths[1].write_bytes(key)
    return *paths, certificate.decode()


async def pinged(port: int, context: ssl.SSLContext | None, host: str = "localhost") -> str:
    """Connect, ping over HTTP/2; gives the protocol agreed on by ALPN."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=host if context else None
    )
    writer.write(GREETING + frame(Type.PING, 0, 0, b"12345678"))
    answer = frame(Type.PING, frames.ACK, 0, b"12345678")
    got = b""
    while answer not in got:
        piece = await reader.read(65_536)
        assert piece, "closed"
        got += piece
    agreed = ""
    if context is not None:
        agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.close()
    return agreed


def trusting(certificate: str | None = None) -> ssl.SSLContext:
    """A client that trusts that certificate; without one it checks nothing, as RocketMQ's clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if certificate is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=certificate)
    return context


def test_plaintext_and_tls_share_the_port() -> None:
    async def story(port: int) -> None:
        assert await pinged(port, None) == ""
        assert await pinged(port, trusting()) == "h2"
        assert await pinged(port, None) == ""

    with_door(Certificate(None, None, "127.0.0.1"), story)


def test_a_certificate_of_files_is_checked_by_its_name(tmp_path) -> None:
    certificate, key, text = files(tmp_path, "broker.test")

    async def story(port: int) -> None:
        assert await pinged(port, trusting(text), "broker.test") == "h2"
        with pytest.raises(ssl.SSLCertVerificationError):
            await pinged(port, trusting(text), "another.test")

    with_door(Certificate(certificate, key, "127.0.0.1"), story)


def test_the_files_are_read_again_and_bad_ones_change_nothing(tmp_path) -> None:
    certificate, key, old = files(tmp_path, "old.test")
    new_certificate, new_key, new = files(tmp_path, "new.test")
    served = Certificate(certificate, key, "127.0.0.1")

    async def story(port: int) -> None:
        assert await pinged(port, trusting(old), "old.test") == "h2"
        certificate.write_text("rubbish")
        with pytest.raises(HorologError, match=r"old\.test\.crt") as caught:
            served.reload()
        assert caught.value.code is ErrorCode.CONFIG
        assert await pinged(port, trusting(old), "old.test") == "h2"
        certificate.write_bytes(new_certificate.read_bytes())
        key.write_bytes(new_key.read_bytes())
        assert served.reload()
        assert await pinged(port, trusting(new), "new.test") == "h2"
        with pytest.raises(ssl.SSLCertVerificationError):
            await pinged(port, trusting(old), "old.test")

    with_door(served, story)


def test_a_key_that_others_can_read_is_reported(tmp_path, caplog) -> None:
    certificate, key, _ = files(tmp_path, "broker.test")
    certificate.chmod(0o644)
    key.chmod(0o600)
    served = Certificate(certificate, key, "127.0.0.1")
    served.warn()
    assert caplog.messages == []
    key.chmod(0o644)
    served.warn()
    assert caplog.messages == [f"{key} can be read by other users of this machine: chmod 600"]
    Certificate(None, None, "127.0.0.1").warn()
    assert len(caplog.messages) == 1


def test_what_comes_with_the_good_bye_of_tls_is_heard() -> None:
    """A client that sends one-way and closes has both in one chunk: what it sent was lost."""

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting().wrap_bio(incoming, outgoing)

        async def until_it_works(step: Callable[[], object]) -> object:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    if piece := await reader.read(65_536):
                        incoming.write(piece)
                    else:
                        incoming.write_eof()

        await until_it_works(client.do_handshake)
        client.write(GREETING + frame(Type.PING, 0, 0, b"12345678"))
        with suppress(ssl.SSLWantReadError):
            client.unwrap()
        writer.write(outgoing.read())  # the last of the handshake, the ping and the good-bye
        heard = b""
        with suppress(ssl.SSLError):  # nor has the broker anything more to say
            while piece := await until_it_works(lambda: client.read(65_536)):
                assert isinstance(piece, bytes)
                heard += piece
        assert frame(Type.PING, frames.ACK, 0, b"12345678") in heard
        writer.close()

    with_door(Certificate(None, None, "127.0.0.1"), story)


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_asked_for_it(tmp_path) -> None:
    """OpenSSL asks on the terminal: on SIGHUP all clients waited for an answer to that."""
    certificate, key, _ = files(tmp_path, "broker.test")
    served = Certificate(certificate, key, "127.0.0.1")
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(HorologError, match="the key has a pass phrase") as caught:
        served.reload()
    assert (caught.value.code, caught.value.field) == (ErrorCode.CONFIG, "--tls-cert")


@pytest.mark.parametrize("which", [0, 1], ids=["certificate", "key"])
def test_a_pipe_is_not_read_again(tmp_path, which: int) -> None:
    """Nobody writes to it, so reading it would hold up the broker for ever."""
    paths = files(tmp_path, "broker.test")[:2]
    served = Certificate(*paths, "127.0.0.1")
    context = served.context
    paths[which].unlink()
    os.mkfifo(paths[which])
    with pytest.raises(HorologError, match="is not a regular file") as caught:
        served.reload()
    assert (caught.value.code, caught.value.field) == (ErrorCode.CONFIG, "--tls-cert")
    assert served.context is context


def test_it_is_known_when_the_certificate_of_files_ends(tmp_path) -> None:
    """Told by metrics and `horolog doctor`; one that is made here ends with the process long before."""
    certificate, key, _ = files(tmp_path, "broker.test")
    served = Certificate(certificate, key, "127.0.0.1")
    assert served.ends_s is not None
    days = (served.ends_s - time.time()) / 86_400
    assert 3_649 < days < 3_651
    certificate.write_text("rubbish")
    with pytest.raises(HorologError):
        served.reload()
    assert served.ends_s is not None
    assert Certificate(None, None, "127.0.0.1").ends_s is None


def test_a_certificate_that_is_not_valid_now_is_reported(tmp_path, caplog) -> None:
    """At a start, when it is read again, and by `horolog config check`; it is used all the same."""
    certificate, key, _ = files(tmp_path, "broker.test")
    key.chmod(0o600)
    served = Certificate(certificate, key, "127.0.0.1")
    served.warn()
    assert caplog.messages == []
    ends_s = served.ends_s
    assert ends_s is not None
    assert "ended on 20" in served.invalidity(ends_s)
    assert served.invalidity(ends_s - 1) == served.invalidity(ends_s - 3_649 * 86_400) == ""
    assert f"the certificate of {certificate} begins on 20" in served.invalidity(0)
    assert Certificate(None, None, "127.0.0.1").invalidity(0) == ""
    ended = datetime.now(UTC) - timedelta(days=1)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker.test")])
    certificate.write_bytes(
        x509.CertificateBuilder(name, name, private.public_key(), 1)
        .not_valid_before(ended - timedelta(days=1))
        .not_valid_after(ended)
        .sign(private, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    assert served.reload()
    served.warn()
    assert caplog.messages == [
        f"the certificate of {certificate} ended on {ended:%Y-%m-%d};"
        " clients that check it do not connect"
    ]


def test_files_that_cannot_be_used_name_the_flag(tmp_path) -> None:
    certificate, key, _ = files(tmp_path, "a.test")
    _, other, _ = files(tmp_path, "b.test")
    for wrong, why in {
        (tmp_path / "none", key): "No such file or directory",
        (certificate, other): "the key belongs to another certificate",
        (key, key): f"there is no CERTIFICATE (PEM) in {key}",
        (certificate, None): f"there is no PRIVATE KEY (PEM) in {certificate}",
        (tmp_path, None): "Is a directory",
    }.items():
        with pytest.raises(HorologError) as caught:
            Certificate(*wrong, "127.0.0.1")
        assert caught.value.code is ErrorCode.CONFIG
        assert caught.value.field == "--tls-cert"
        assert caught.value.message.endswith(f"cannot be used: {why}")
    with pytest.raises(HorologError) as caught:
        Certificate(None, key, "127.0.0.1")
    assert caught.value.field == "--tls-key"
    assert not Certificate(None, None, "127.0.0.1").reload()


@pytest.mark.parametrize(
    "words",
    [b"\x16\x03\x01\x02\0\x01", b"\x16", b"\x16" + b"\xff" * 200, b"GET / HTTP/1.1\r\n\r\n"],
    ids=["half a hello", "one byte", "garbage", "HTTP/1"],
)
def test_half_a_handshake_keeps_nobody_waiting(words) -> None:
    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(words)
        assert await pinged(port, trusting()) == "h2"
        assert await pinged(port, None) == ""
        while await reader.read(65_536):
            pass  # until it is closed
        writer.close()

    with_door(Certificate(None, None, "127.0.0.1"), story, quiet_ms=100, unanswered_ms=100)


def test_connections_beyond_the_limit_are_refused_and_the_others_go_on() -> None:
    async def story(port: int) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in held:
            writer.write(GREETING)
        for reader, _ in held:
            assert await reader.read(100)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        received = b""
        with suppress(ConnectionError):
            received = await reader.read()
        assert not received or b"too many connections" in received
        writer.close()
        held[0][1].close()
        while True:
            try:
                await pinged(port, None)
            except (ConnectionError, AssertionError):
                continue  # the one that left is not noticed yet
            break
        for _, writer in held[1:]:
            writer.close()

    with_door(None, story, connections=3)


def test_a_certificate_of_ours_needs_no_disk(tmp_path, monkeypatch) -> None:
    """A container may be read-only, and a disk full."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))

    async def story(port: int) -> None:
        assert await pinged(port, trusting()) == "h2"

    with_door(Certificate(None, None, "127.0.0.1"), story)


def test_a_certificate_that_cannot_be_loaded_ends_one_connection(monkeypatch, caplog) -> None:
    def full(_: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def story(port: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", full)
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await pinged(port, trusting())
        assert await pinged(port, trusting()) == "h2"

    with_door(Certificate(None, None, "127.0.0.1"), story)
    assert "no certificate for TLS: Too many open files" in caplog.text
    assert "Traceback" not in caplog.text
