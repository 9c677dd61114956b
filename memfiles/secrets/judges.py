"""Judges: they tell a credential from placeholders, references, identifiers and prose.

Every function gets a text with the shape of a credential and returns whether it is one. None of them keeps, logs or
returns that text.
"""

from __future__ import annotations

import binascii
import json
import math
import re
import zlib
from collections import Counter

from memfiles.records import late_pattern

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECKSUM_LENGTH = 6
_MIN_ENTROPY = 2.9  # bits a character; of 100,000 random 20-character upper-case tokens 3 lie below it
_MIN_KEY = 16
_MIN_PASSWORD = 6

_PLACEHOLDER = late_pattern(
    r"example|your|placeholder|change[_-]?(?:me|this|it)|replace|redacted|dummy|sample|insert|fake|todo"
    r"|(.)\1{5}|\.\.\.|\*\*\*|…|•••",
    re.IGNORECASE,
)
# A variable, template, tag, handle, path, URL, call, attribute or constant: where the value is, not what it is.
_REFERENCE = late_pattern(
    r"""(?ix: \$ (?:[a-z_]\w*(?:$|[-.:[({]) | [{(]) | % (?:[sdr({]|\w+%) | [{<\[] | :[a-z_]+$ | \#\{ | @\{
          | ! (?:vault|secret|env|env_var|include|ref|sub|getatt) \b
          | (?:~|\.{1,2})?/
          | (?:secret|vault|op|env|ssm|arn|file|keyring|sops|aws|gcp|azure|kms|bws|s3|ref\+\w+) [:/]
          | (?:sha\d*|md5|https?|urn) [:/]
          | [a-z_][\w.:>-]* [(\[{] )
        | [A-Za-z_]\w{0,30} (?:(?:\.|->|::)[A-Za-z_]\w{0,30})+ $
        | [A-Z][A-Z0-9]* (?:_[A-Z0-9]+)+ $""",
    re.ASCII | re.VERBOSE,
)
_DIGEST = late_pattern(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{1,23}", re.IGNORECASE)  # UUID, short hash
_WORD = r"(?>[A-Z]?[a-z]+|[A-Z]+|[0-9]{1,6}|)"  # atomic: with backtracking, "A-A-A-..." would never end
_WORDS = late_pattern(rf"{_WORD}(?:[-_./:+]{_WORD})*+")
_EMAIL = late_pattern(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_MEASURE = late_pattern(r"v?\d+(?:[.:/-]\d+)+\w{0,3}|\d{1,3}[-.]?[a-z%]+|(?:19|20)\d\d[-/.T]?\d\d.*", re.IGNORECASE)
_FILE = late_pattern(r"[\w./-]+\.(?:ya?ml|json|toml|ini|env|txt|md|py|[jt]sx?|go|rs|sh|pem|key|kdbx|gpg|html?|csv|pdf)")
_TECHNICAL = late_pattern(
    r"(?:sha-?\d|md5|base(?:32|58|62|64)|argon2|bcrypt|scrypt|pbkdf2|aes-?\d|rsa-?\d|ed25519|utf-?8|oauth-?\d|pkcs"
    r"|[12]password|2fa|x-?\.?509|rfc-?\d|iso-?\d|n/a"
    r"|(?:chars?|false|max|min|none|null|optional|required|see|string|true)\b)",
    re.IGNORECASE,
)
_SELF_NAMING = late_pattern(r"pass(?:word|wd|phrase|code)?s?\b|passw|pwd|secret|credential", re.IGNORECASE)
_CUT = late_pattern(r"[,;&|)}\]\\]")
# Defaults of programs and examples of documentation, which are not credentials.
_DEFAULTS = frozenset(
    """
    admin administrator anonymous changeit default docker foobar guest hidden incorrect invalid letmein localhost mongo
    mysql nopass none null pass passwd password passwort postgres postgresql protected pwd rabbitmq redis root secret
    test tester testing testpass token undefined unknown user username
    accepted disabled encrypted expired forgotten mandatory plaintext rejected sensitive temporary unchanged verified
    """.split()
)


def random_token(text: str) -> bool:
    """Whether ``text`` is as mixed as a generated token, and not a placeholder."""
    entropy = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    return not _PLACEHOLDER.search(text) and entropy >= _MIN_ENTROPY


def mixed_token(text: str) -> bool:
    """Whether ``text`` is random and not hyphenated words: for prefixes that also begin ordinary names."""
    return _has_letter(text) and _has_digit(text) and not _WORDS.fullmatch(text) and random_token(text)


def checksummed_token(text: str) -> bool:
    """Whether the last six characters are the base-62 CRC32 of the text between them and the prefix.

    Source: GitHub, "Behind GitHub's new authentication token formats" (2021); npm took over the scheme.
    """
    body = text[text.index("_") + 1 :]
    payload, checksum = body[:-_CHECKSUM_LENGTH], body[-_CHECKSUM_LENGTH:]
    return checksum == _base62(zlib.crc32(payload.encode()))


def json_web_token(text: str) -> bool:
    """Whether the first part is a JSON object that names an algorithm, as RFC 7515 demands of a header."""
    try:
        header = json.loads(_decode(text[: text.index(".")]))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and isinstance(header.get("alg"), str)


def private_key(text: str) -> bool:
    """Whether a PEM block holds key material: at least one unbroken run of it, not an ellipsis."""
    return re.search(r"[A-Za-z0-9+/]{40}", text) is not None and not re.search(r"(.)\1{15}", text)


def continues_redaction(text: str) -> bool:
    """Whether text directly after a redaction is not a word, but more of what was redacted."""
    value = _first_part(text)
    return len(value) >= 4 and (_has_digit(value) or value[1:] != value[1:].lower()) and not _PLACEHOLDER.search(value)


def discord_token(text: str) -> bool:
    """Whether the first part is the account's number in base 64, as in every Discord token."""
    try:
        return _decode(text[: text.index(".")]).isdigit() and random_token(text)
    except ValueError:
        return False


def basic_credentials(text: str) -> bool:
    """Whether ``text`` is ``user:password`` in base 64 (RFC 7617), with a password worth hiding."""
    try:
        user, colon, password = _decode(text).decode().partition(":")
    except ValueError:
        return False
    return bool(colon) and user.isprintable() and url_password(password)


def url_password(text: str) -> bool:
    """Whether the password in ``scheme://user:password@host`` is one, not a default or a reference."""
    return len(text) >= 4 and text.lower() not in _DEFAULTS and not _stands_for_something(text)


def assigned_key(text: str) -> bool:
    """Whether a value given to a key, token or secret is random: long, mixed, and not the name of anything."""
    value = _first_part(text)
    if len(value) < _MIN_KEY or _DIGEST.fullmatch(value) or _stands_for_something(value):
        return False
    return mixed_token(value)


def quoted_password(text: str) -> bool:
    """Whether a literal in quotes, or after ``NAME=``, is a password: one long word is enough."""
    if bare_password(text):
        return True
    if _has_digit(text) or _stands_for_something(text) or _is_remark(text) or _SELF_NAMING.search(text):
        return False
    words = re.split(r"[-_.]", text)
    return text.lower() not in _DEFAULTS and (len(words) >= 4 or (len(words) == 1 and 8 <= len(text) <= 32))


def bare_password(text: str) -> bool:
    """Whether a value directly after ``password:`` is one: more than a word, and not a remark."""
    value = _first_part(text)
    if len(value) < _MIN_PASSWORD or _stands_for_something(value) or _is_remark(value):
        return False
    if "_" in value and value.replace("_", "").isalnum() and value.islower() and _SELF_NAMING.search(value):
        return False
    marked = _has_digit(value) or any(char in "!@#$%^&*+=?~" for char in value[:-1])
    return _is_number(value) or (_has_letter(value) and marked)


def stated_password(text: str) -> bool:
    """Whether the word after "the password is" is one: as ``bare_password``, and not words with hyphens."""
    return bare_password(text) and not _WORDS.fullmatch(_first_part(text)) or _is_number(_first_part(text))


def _stands_for_something(value: str) -> bool:
    return bool(_PLACEHOLDER.search(value) or _REFERENCE.match(value))


def _is_remark(value: str) -> bool:
    return any(kind.fullmatch(value) for kind in (_EMAIL, _MEASURE, _FILE)) or bool(_TECHNICAL.match(value))


def _is_number(value: str) -> bool:
    return value.isdigit() and len(value) >= _MIN_PASSWORD and len(set(value)) >= 4 and not _MEASURE.fullmatch(value)


def _first_part(text: str) -> str:
    return _CUT.split(text, maxsplit=1)[0]


def _has_letter(text: str) -> bool:
    return any(char.isalpha() for char in text)


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _base62(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits.rjust(_CHECKSUM_LENGTH, "0")


def _decode(text: str) -> bytes:
    import base64  # late: few texts need it

    try:
        return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError("not base 64") from error
