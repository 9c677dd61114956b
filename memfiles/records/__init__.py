"""Records as values, their codecs and history, and the pure decisions over them.

Other rooms use ``declared_metadata``, ``entry``, ``entry_codec``, ``file_changes``, ``graphemes``, ``history``,
``keys``, ``levels``, ``lineage``, ``marks``, ``record`` and ``redactions``.

A late_pattern is a regular expression that is compiled at its first use: that takes up to a millisecond, and a
command that only reads would compile dozens in vain. A NamedTuple is as in typing, whose classes take eight times
as long to make, as each field and the class are compiled from texts: a search makes thirty.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections import _tuplegetter  # type: ignore[attr-defined]  # the same for every interpreter
from collections.abc import Callable
from functools import cache
from importlib import import_module, reload
from typing import TYPE_CHECKING, Any, AnyStr, TypeVar, cast

from msgspec import Struct, convert
from msgspec.json import Decoder, Encoder

StructT = TypeVar("StructT", bound=Struct)


def _plain(value: object) -> object:
    """A value of a class that inherits from text or numbers, as frameworks pass them, as plain text or number."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


to_json = Encoder(enc_hook=_plain).encode
"""The JSON of a value, as every record is written: UTF-8 without spaces."""

learning = threading.RLock()  # a fork waits for it, see ``storage.fork_safety``; a ``__del__`` may come in between


@cache
def decoder_of(model: type[StructT]) -> Decoder[StructT]:
    """The decoder of a class, made at its first use, which takes up to a millisecond.

    While msgspec learns the fields of a class, a second thread that decodes or converts to it crashes the process.
    """
    with learning:
        return Decoder(model)


def converted(value: object, model: type[StructT]) -> StructT:
    """As ``convert`` of msgspec, also by several threads at once."""
    decoder_of(model)  # by which msgspec learns all of the class
    return convert(value, model)


_MEGABYTE = 1 << 20


class _Hashed:
    """The bytes that were hashed before OpenSSL was loaded, if it is loaded later than the first of them."""

    size = -1 if "_hashlib" in sys.modules else 0


def sha256(data: bytes) -> hashlib._Hash:
    """SHA-256 from ``hashlib``: OpenSSL's is eight times as fast, but a short command saves the 4 ms of loading it.

    See ``memfiles.cli.lean_imports``. A process loads it after a megabyte.
    """
    if _Hashed.size >= 0 and (size := _Hashed.size + len(data)) > _MEGABYTE:
        _Hashed.size = -1
        reload(hashlib)
    elif _Hashed.size >= 0:
        _Hashed.size = size
    return hashlib.sha256(data)


class _LateLogger:
    is_quiet = False  # whether it is for handlers of others alone, and nobody hears it without one
    teller: Callable[[str], object] | None = None  # how a command shows what a person has to act on

    def tell(self, text: str) -> None:
        """Log a warning that a person has to act on; a command shows it as well."""
        self.warning("%s", text)
        if self.teller is not None:
            self.teller(text)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the logger ``memfiles``."""
        logging = import_module("logging")
        logger = logging.getLogger("memfiles")
        if self.is_quiet:
            logger.addHandler(logging.NullHandler())
            self.is_quiet = False
        return getattr(logger, name)


late_logger = _LateLogger()
"""The logger ``memfiles``; a command that has nothing to say does not load ``logging``, which takes 3 ms."""


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The regular expression, compiled at the first use of one of its methods."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, method: str) -> Any:
        """The method of the compiled expression; kept, so that the next call finds it at once."""
        found = getattr(re.compile(self.pattern, self._flags), method)
        vars(self)[method] = found
        return found


if TYPE_CHECKING or sys.version_info >= (3, 14):  # where annotations come otherwise
    from typing import NamedTuple as NamedTuple
else:

    class _TupleType(type):
        def __new__(cls, name, bases, namespace):
            if not bases:
                return super().__new__(cls, name, (tuple,), namespace)
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            namespace.update((field, _tuplegetter(at, None)) for at, field in enumerate(fields))
            known = {"_fields": fields, "__match_args__": fields, "_field_defaults": defaults, "__slots__": ()}
            known["_rest"] = {len(fields) - at: tuple(defaults.values())[-at:] for at in range(1, len(defaults) + 1)}
            return super().__new__(cls, name, bases, namespace | known)

        @property
        def __signature__(cls):
            """The signature of a call, for ``help`` and editors."""
            from inspect import Parameter, Signature  # late: few ask

            kinds, defaults = cls.__annotations__, cls._field_defaults
            how = Parameter.POSITIONAL_OR_KEYWORD
            return Signature(
                [
                    Parameter(it, how, default=defaults.get(it, Parameter.empty), annotation=kinds[it])
                    for it in cls._fields
                ]
            )

    class NamedTuple(metaclass=_TupleType):
        """Base of tuples whose fields have names, the annotations of a class; see ``typing.NamedTuple``."""

        __slots__ = ()

        def __new__(cls, *values, **named):
            """A tuple of these fields, in their order or by name."""
            if named:
                values = cls._bound(values, named)
            elif len(values) != len(cls._fields):
                values += cls._rest[len(values)] if len(values) in cls._rest else cls._bound(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _bound(cls, values, named):
            rest, given = cls._fields[len(values) :], cls._field_defaults | named
            values += tuple([given[field] for field in rest if field in given])
            if len(values) != len(cls._fields) or not named.keys() <= {*rest}:
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}, each once")
            return values

        _make = classmethod(tuple.__new__)  # takes all fields and checks nothing: it runs for every row of a query

        def _replace(self, **named):
            return type(self)(**self._asdict() | named)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={it!r}' for name, it in self._asdict().items())})"


if TYPE_CHECKING:  # that of 3.11 locks, which a fork may leave locked, and later ones may give each thread its own
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 - as of functools
        """A value that is computed when it is first asked for; if by several threads at once, all get the first."""

        def __init__(self, compute):
            self._compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return vars(instance).setdefault(self._name, self._compute(instance))
