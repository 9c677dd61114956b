"""Envelopes ``memfiles-sealed/1``: a header line with the key's id and a MAC, then the body, encrypted if asked.

    {"format":"memfiles-sealed/1","key":"<16 hex>","nonce":"<24 hex, or empty>","mac":"<64 hex>"}<newline><body>

The rules this file guards: an envelope opens only with a key that its reader holds, only at the object key that it was
sealed for, and only if not a bit of it differs; each use of a key has a key of its own, derived by HKDF (RFC 5869); and
no message, representation or header shows a key.

The MAC is an HMAC-SHA-256 over the format, the key's id, the nonce, the object key and the body as stored. With a
nonce, the body is encrypted by AES-256-GCM, under a key derived for that object key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from typing import Any

from memfiles.errors import CopyRefused, MirrorRefused

FORMAT = b"memfiles-sealed/1"
OVERHEAD_MAX_BYTES = 256  # of an envelope over its body
KEY_MIN_LENGTH = 32
KEYS_MAX = 8
_ALTERED = (
    "the mirror's object was altered, or copied from another key; delete it in the mirror, and a machine that has the "
    "record pushes it again"
)
_ADVICE = "make one with `openssl rand -hex 32`"
_MOST_DISTINCT = 10  # of 32 random hex digits, 14 differ on average, and fewer than 10 in one of 10,000 keys
_HEADER = re.compile(
    rb'\{"format":"memfiles-sealed/1","key":"([0-9a-f]{16})","nonce":"([0-9a-f]{24}|)","mac":"([0-9a-f]{64})"\}\n'
)
_ANY_VERSION = b'{"format":"memfiles-sealed/'
_NONCE_BYTES = 12


class MirrorKey:
    """One key of a mirror, and what is derived from it."""

    def __init__(self, text: str) -> None:
        """``text`` as ``MirrorKeys.parse`` accepts it."""
        self._master = hmac.digest(FORMAT, text.encode(), hashlib.sha256)  # HKDF-Extract, the format as its salt
        self.id = self.derive("id").hex()[:16]
        self._mac_key = self.derive("mac")

    def derive(self, purpose: str, about: str = "") -> bytes:
        """The key of 32 bytes for one purpose and, if given, one thing that it is about (HKDF-Expand)."""
        return hmac.digest(self._master, f"{purpose}\0{about}\x01".encode(), hashlib.sha256)

    def mac(self, object_key: str, *, nonce: bytes, body: bytes) -> bytes:
        """The MAC of a body as stored at ``object_key``; every part but the last has its length before it."""
        made = hmac.new(self._mac_key, digestmod=hashlib.sha256)
        for part in (FORMAT, self.id.encode(), nonce, object_key.encode()):
            made.update(len(part).to_bytes(4, "big") + part)
        made.update(body)
        return made.digest()

    def cipher(self, object_key: str) -> Any:
        """AES-256-GCM for the bodies at ``object_key``."""
        return _aes_gcm()(self.derive("encryption", object_key))


class MirrorKeys:
    """The keys of a mirror: the first one seals, and all of them open."""

    def __init__(self, keys: Iterable[MirrorKey], *, source: str) -> None:
        """``source`` names where the keys come from, in messages."""
        self._by_id = {key.id: key for key in keys}
        self.source = source

    @classmethod
    def parse(cls, text: str, *, source: str) -> MirrorKeys:
        """The keys in ``text``, separated by commas; ``MirrorRefused`` for a key that could be guessed."""
        keys = [part.strip() for part in text.split(",")]
        if not text.strip():
            raise MirrorRefused(f"{source} holds no key for the mirror; {_ADVICE}")
        if len(keys) > KEYS_MAX:
            raise MirrorRefused(f"{source} holds {len(keys)} keys; a mirror has at most {KEYS_MAX}")
        for number, key in enumerate(keys, start=1):
            if why := _weakness(key):
                which = f"key {number} of {len(keys)} in {source}" if len(keys) > 1 else f"the key in {source}"
                raise MirrorRefused(f"{which} {why}; {_ADVICE}")
        return cls(map(MirrorKey, keys), source=source)

    @classmethod
    def named(cls, declared: str) -> MirrorKeys:
        """The keys in the environment variable of a declared ``env:NAME``; ``MirrorRefused`` if it is not set."""
        name = declared.removeprefix("env:")
        if name not in os.environ:
            raise MirrorRefused(f"the environment variable {name} is not set; it must hold the key of the mirror")
        return cls.parse(os.environ[name], source=name)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys, the first of which seals; not secret."""
        return tuple(self._by_id)

    def seal(self, object_key: str, body: bytes, *, encrypt: bool) -> bytes:
        """The envelope of ``body`` for ``object_key``."""
        key = next(iter(self._by_id.values()))
        nonce = os.urandom(_NONCE_BYTES) if encrypt else b""
        stored = key.cipher(object_key).encrypt(nonce, body, None) if encrypt else body
        mac = key.mac(object_key, nonce=nonce, body=stored)
        return b'{"format":"%s","key":"%s","nonce":"%s","mac":"%s"}\n%s' % (
            *(FORMAT, key.id.encode(), nonce.hex().encode(), mac.hex().encode(), stored),
        )

    def open(self, object_key: str, envelope: bytes) -> bytes:
        """The body in the envelope found at ``object_key``; ``CopyRefused`` for anything but a genuine one."""
        if not is_sealed(envelope):
            raise CopyRefused(f"{object_key}: the mirror's object is not signed; `memfiles sync rekey` signs a bucket")
        header = _HEADER.match(envelope)
        if header is None:
            raise CopyRefused(f"{object_key}: the mirror's object has a damaged header, or one of a later version")
        name, nonce, mac = header[1].decode(), bytes.fromhex(header[2].decode()), bytes.fromhex(header[3].decode())
        key = self._by_id.get(name)
        if key is None:
            held = f"{self.source} holds {', '.join(self._by_id)}"
            raise CopyRefused(f"{object_key}: the mirror's object is signed with another key, {name} ({held})")
        stored = envelope[header.end() :]
        if not hmac.compare_digest(mac, key.mac(object_key, nonce=nonce, body=stored)):
            raise CopyRefused(f"{object_key}: {_ALTERED}")
        return _decrypted(key, object_key, nonce=nonce, stored=stored) if nonce else stored

    def is_current(self, envelope: bytes, *, encrypt: bool) -> bool:
        """Whether a genuine envelope was made with the key that seals now, in the form that is asked for."""
        header = _HEADER.match(envelope)
        return header is not None and header[1].decode() == self.ids[0] and bool(header[2]) == encrypt


def is_sealed(body: bytes) -> bool:
    """Whether ``body`` looks like an envelope, of any version."""
    return body.startswith(_ANY_VERSION)


def check_encryption() -> None:
    """Raise ``MirrorRefused`` if the library that encrypts is not installed."""
    _aes_gcm()


def _aes_gcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: only encrypted mirrors need it
    except ImportError as error:
        raise MirrorRefused("an encrypted mirror needs an extra: pip install 'memfiles[encryption]'") from error
    return AESGCM


def _decrypted(key: MirrorKey, object_key: str, *, nonce: bytes, stored: bytes) -> bytes:
    cipher = key.cipher(object_key)  # says which extra is missing
    from cryptography.exceptions import InvalidTag

    try:
        body: bytes = cipher.decrypt(nonce, stored, None)
    except InvalidTag:  # its MAC is right: only a holder of the key can have made it
        raise CopyRefused(f"{object_key}: the mirror's object cannot be decrypted") from None
    return body


def _weakness(key: str) -> str | None:
    """What makes a key too easy to guess, or unusable; None for a good one."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        return "has a space or a character outside ASCII"
    if len(key) < KEY_MIN_LENGTH:
        return f"has {len(key)} characters; at least {KEY_MIN_LENGTH} are needed"
    steps = {ord(after) - ord(before) for before, after in zip(key, key[1:], strict=False)}
    is_repetition = key in (key + key)[1:-1]
    if len(set(key)) < _MOST_DISTINCT or len(steps) < _MOST_DISTINCT or is_repetition:
        return "is too regular to be random"
    return None
