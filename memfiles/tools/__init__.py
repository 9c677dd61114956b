"""The model's view of memory: sessions, tools, the index card, schemas and results.

``memfiles.tools(refs, manager, dialect)`` is a public function and this package has its name: the import system puts
the package in the function's place, so the package can be called in the same way.

Other rooms use ``arguments``, ``compaction``, ``definitions``, ``dialects``, ``entry_tools``, ``json_schemas``,
``oversight``, ``profiles``, ``results``, ``session``, ``visibility`` and ``worker_calls``.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        from memfiles.tools.session import tools  # late: importing the package must load nothing

        return tools(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
