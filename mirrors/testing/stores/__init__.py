"""The exam that every record store must pass: one question for each promise of ``memfiles.storage.record_store``.

With pytest it takes a few lines::

    from mirrors.testing.stores import StorePlace, questions

    @pytest.mark.parametrize("question", questions(), ids=lambda question: question.__name__)
    def test_my_store_keeps_its_promises(question, tmp_path):
        question(StorePlace("acme.stores:open_store", (f"acme://localhost/{tmp_path.name}",)))

Every question needs an empty place and raises an ``AssertionError`` that says what is wrong. It opens the store several
times, here and in processes of its own, some of which it kills. With ``holds`` it also looks behind the store: what was
erased must be nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from mirrors.testing.stores import changes, feed, processes
from mirrors.testing.stores.place import StorePlace

__all__ = ["StorePlace", "questions"]


def questions() -> list[Callable[[StorePlace], None]]:
    """The questions, in a fixed order."""
    asked = [value for module in (changes, feed, processes) for value in vars(module).items()]
    modules = {module.__name__ for module in (changes, feed, processes)}
    return [each for name, each in asked if name[0] != "_" and getattr(each, "__module__", "") in modules]
