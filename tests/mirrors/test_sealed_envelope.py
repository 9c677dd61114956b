"""Envelopes: what opens them, what does not, which keys are taken, and that no key is shown."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from itertools import count

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import CopyRefused, MirrorRefused
from mirrors.sealed.envelope import FORMAT, OVERHEAD_MAX_BYTES, MirrorKey, MirrorKeys, is_sealed

NEW, OLD = secrets.token_hex(32), secrets.token_urlsafe(32)
KEYS = MirrorKeys.parse(NEW, source="MEMFILES_MIRROR_KEY")
BODY = b'{"format": "memfiles/1", "content": "- Bob is on Pro\\n"}\n'


@pytest.mark.parametrize("encrypt", [False, True])
@given(body=st.binary(max_size=2000), object_key=st.sampled_from(["a.json", "entries/désk/1.json", ".state/x"]))
def test_what_is_sealed_opens_where_it_belongs(encrypt: bool, body: bytes, object_key: str) -> None:
    """Any body, byte for byte, with little more around it."""
    envelope = KEYS.seal(object_key, body, encrypt=encrypt)

    assert body == KEYS.open(object_key, envelope)
    assert is_sealed(envelope)
    assert len(envelope) <= len(body) + OVERHEAD_MAX_BYTES


def test_a_signed_body_can_be_read_and_an_encrypted_one_cannot() -> None:
    """The header is a line of JSON; a body that is only signed follows as it is."""
    signed, encrypted = (KEYS.seal("a.json", BODY, encrypt=encrypt) for encrypt in (False, True))
    header = json.loads(signed.partition(b"\n")[0])

    assert signed.partition(b"\n")[2] == BODY
    assert b"Bob" not in encrypted
    assert (FORMAT.decode(), KEYS.ids[0], "") == (header["format"], header["key"], header["nonce"])
    assert KEYS.seal("a.json", BODY, encrypt=True) != encrypted


@pytest.mark.parametrize("encrypt", [False, True])
def test_no_bit_of_an_envelope_may_differ(encrypt: bool) -> None:
    """Each single flipped bit is refused, in the header as in the body."""
    envelope = KEYS.seal("a.json", b"x" * 20, encrypt=encrypt)
    opened = []
    for bit in range(len(envelope) * 8):
        changed = bytearray(envelope)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            opened.append(KEYS.open("a.json", bytes(changed)))
        except CopyRefused:
            continue

    assert [] == opened


@pytest.mark.parametrize("encrypt", [False, True])
@given(data=st.data())
def test_no_part_of_an_envelope_opens(encrypt: bool, data: st.DataObject) -> None:
    """Nothing can be cut off, added or put in between."""
    envelope = KEYS.seal("a.json", BODY, encrypt=encrypt)
    at = data.draw(st.integers(0, len(envelope)))
    cut, added = envelope[:at], envelope[:at] + data.draw(st.binary(min_size=1, max_size=9)) + envelope[at:]
    for changed in (cut, added):
        if changed != envelope:
            with pytest.raises(CopyRefused):
                KEYS.open("a.json", changed)


@pytest.mark.parametrize("encrypt", [False, True])
def test_an_envelope_opens_at_its_own_place_only(encrypt: bool) -> None:
    """Under another object key it is refused, also where key and body together are the same bytes."""
    envelope = KEYS.seal("a.json", BODY, encrypt=encrypt)
    for elsewhere in ("b.json", "a.jso", "a.json/", "n/a.json"):
        with pytest.raises(CopyRefused, match="altered, or copied"):
            KEYS.open(elsewhere, envelope)


def test_signed_and_encrypted_cannot_be_exchanged() -> None:
    """A signed body that looks like ciphertext does not pass for an encrypted one, nor the other way round."""
    encrypted = KEYS.seal("a.json", BODY, encrypt=True)
    nonce = json.loads(encrypted.partition(b"\n")[0])["nonce"].encode()

    with pytest.raises(CopyRefused):
        KEYS.open("a.json", encrypted.replace(nonce, b""))


def test_what_is_not_signed_is_refused() -> None:
    """A record as it is on disk says what to do; a later version of the format says what it is."""
    with pytest.raises(CopyRefused, match=r"a.json: the mirror's object is not signed; `memfiles sync rekey` signs"):
        KEYS.open("a.json", BODY)
    with pytest.raises(CopyRefused, match="a later version"):
        KEYS.open("a.json", b'{"format":"memfiles-sealed/2","key":"..."}\n')


def test_the_first_key_seals_and_all_open() -> None:
    """Machines that know both keys read either; one that lost the old one says which key it lacks."""
    both, old = MirrorKeys.parse(f"{NEW}, {OLD}\n", source="K"), MirrorKeys.parse(OLD, source="K")
    by_old = old.seal("a.json", BODY, encrypt=True)

    assert BODY == both.open("a.json", by_old) == KEYS.open("a.json", both.seal("a.json", BODY, encrypt=True))
    assert (KEYS.ids + old.ids) == both.ids
    assert [False, True, False] == [
        both.is_current(by_old, encrypt=True),
        both.is_current(both.seal("a.json", BODY, encrypt=True), encrypt=True),
        both.is_current(both.seal("a.json", BODY, encrypt=False), encrypt=True),
    ]
    with pytest.raises(CopyRefused, match=f"another key, {old.ids[0]} .MEMFILES_MIRROR_KEY holds {KEYS.ids[0]}"):
        KEYS.open("a.json", by_old)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no key"),
        (" \n", "holds no key"),
        ("short-Key-2026", "the key in K has 14 characters; at least 32"),
        (NEW + ",", "key 2 of 2 in K has 0 characters"),
        (f"{NEW},hunter2", "key 2 of 2 in K has 7 characters"),
        ("0" * 64, "too regular"),
        ("0123456789abcdef" * 4, "too regular"),
        ("abcdefghijklmnopqrstuvwxyz0123456789", "too regular"),
        ("correct horse battery staple and more", "a space"),
        ("ключ" * 10, "outside ASCII"),
        (",".join(secrets.token_hex(32) for _ in range(9)), "holds 9 keys; a mirror has at most 8"),
    ],
    ids=count(),  # the keys are random
)
def test_a_key_that_could_be_guessed_is_refused(text: str, why: str) -> None:
    """The error says what is wrong and how to make a good one, and does not repeat the key."""
    with pytest.raises(MirrorRefused, match=why) as caught:
        MirrorKeys.parse(text, source="K")

    assert not any(part.strip() in str(caught.value) for part in text.split(",") if len(part.strip()) > 3)


@pytest.mark.parametrize("make", [lambda: secrets.token_hex(16), lambda: secrets.token_urlsafe(24)])
def test_a_random_key_is_taken(make: object) -> None:
    """The check of regularity has no false alarms worth mentioning."""
    assert callable(make)
    refused = 0
    for _ in range(2000):
        try:
            MirrorKeys.parse(make(), source="K")
        except MirrorRefused:
            refused += 1

    assert refused <= 3


def test_the_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set is named."""
    monkeypatch.delenv("DESK_KEY", raising=False)
    with pytest.raises(MirrorRefused, match="environment variable DESK_KEY is not set"):
        MirrorKeys.named("env:DESK_KEY")
    monkeypatch.setenv("DESK_KEY", NEW)

    assert KEYS.ids == MirrorKeys.named("env:DESK_KEY").ids


def test_each_purpose_has_a_key_of_its_own() -> None:
    """Derived as RFC 5869 says, by comparison with another implementation; nobody derives one from another."""
    key = MirrorKey(NEW)
    purposes = [("id", ""), ("mac", ""), ("encryption", "a.json"), ("encryption", "b.json")]
    derived = [key.derive(*purpose) for purpose in purposes]
    reference = [
        HKDF(SHA256(), 32, salt=FORMAT, info=f"{purpose}\0{about}".encode()).derive(NEW.encode())
        for purpose, about in purposes
    ]

    assert reference == derived
    assert len(set(derived)) == len(purposes)


def test_no_key_is_shown() -> None:
    """Not by the objects, not by an envelope, not by an error."""
    keys = MirrorKeys.parse(f"{NEW},{OLD}", source="K")
    envelope = keys.seal("a.json", BODY, encrypt=False)
    derived = [hmac.digest(FORMAT, text.encode(), hashlib.sha256).hex() for text in (NEW, OLD)]
    with pytest.raises(CopyRefused) as caught:
        KEYS.open("b.json", envelope)
    shown = " ".join([repr(keys), str(keys), repr(MirrorKey(NEW)), envelope.decode(), str(caught.value), *keys.ids])

    assert [] == [secret for secret in (NEW, OLD, *derived) if secret in shown]


def test_signing_loads_no_library() -> None:
    """Only what is encrypted needs one; where it is missing, an error names the extra."""
    program = """
import sys
import threading
from itertools import count
sys.modules["cryptography"] = None  # as if it were not installed
from mirrors import MemoryMirror, MirrorKeys, SealedMirror
keys = MirrorKeys.named("env:DESK_KEY")
mirror = SealedMirror(MemoryMirror(), keys)
mirror.put("a.json", b"1")
print(mirror.get("a.json").body)
bucket = MemoryMirror()
bucket.put("a.json", b'{"format":"memfiles-sealed/1","key":"%s","nonce":"%s","mac":"%s"}\\n' % (
    keys.ids[0].encode(), b"00" * 12,
    next(iter(keys._by_id.values())).mac("a.json", nonce=bytes(12), body=b"").hex().encode(),
))
for encrypt in (True, False):
    try:
        SealedMirror(bucket, keys, encrypt=encrypt).get("a.json")
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "DESK_KEY": NEW}, capture_output=True, text=True, check=True
    )

    assert [
        "b'1'",
        *["MirrorRefused an encrypted mirror needs an extra: pip install 'memfiles[encryption]'"] * 2,
    ] == done.stdout.splitlines()


def test_a_child_of_a_fork_can_sign_while_a_thread_derives_a_key() -> None:
    """On Python 3.11 the lock of a ``functools.cached_property`` belongs to all keys, and stays locked in the child."""
    begun, may_end = threading.Event(), threading.Event()

    class SlowKey(MirrorKey):
        def derive(self, purpose: str, about: str = "") -> bytes:
            if purpose == "mac":
                begun.set()
                assert may_end.wait(60)
            return super().derive(purpose, about)

    thread = threading.Thread(target=lambda: SlowKey(OLD).mac("a.json", nonce=b"", body=b""))
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(30)  # ends a child that hangs
        os._exit(0 if MirrorKey(NEW).mac("a.json", nonce=b"", body=b"") else 1)
    _, status = os.waitpid(child, 0)
    may_end.set()
    thread.join()

    assert 0 == status
