"""The exam that every mirror must pass: one question for each promise of ``memfiles.sync.mirror.Mirror``.

With pytest it takes a few lines::

    from mirrors.testing import Place, Question, questions

    @pytest.mark.parametrize("question", questions(), ids=str)
    def test_my_mirror_keeps_its_promises(question: Question, tmp_path: Path) -> None:
        question(Place(lambda: MyMirror(tmp_path)))

and without pytest, ``for question in questions(): question(new_place())``. Every question needs an empty place, opens
it more than once, and raises an ``AssertionError`` that says what is wrong. With ``peek`` and ``plant`` it also checks
the store directly: a body that is put must be visible to others, and a body that others put must count.
"""

from __future__ import annotations

from collections.abc import Collection

from mirrors.testing import bodies_and_keys, conditions, many, races
from mirrors.testing.place import Place, Power, Question

__all__ = ["Place", "Power", "Question", "questions"]


def questions(*, without: Collection[Power] = ()) -> list[Question]:
    """The questions, in a fixed order, that do not need the powers ``without``."""
    asked = [value for module in (bodies_and_keys, conditions, many, races) for value in vars(module).values()]
    return [each for each in asked if isinstance(each, Question) and not each.needs.intersection(without)]
