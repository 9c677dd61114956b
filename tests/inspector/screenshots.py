"""Pictures of every page, to be looked at: ``python -m tests.inspector.screenshots FOLDER``.

With ``--write`` those in the README are made again, as docs/inspector-*.png.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.inspector.conftest import visiting
from tests.inspector.inspecting import SHOWN, Visit, chromium, filled, hosting
from tests.support import ROOT

WIDTHS = (1440, 360)
THEMES = ("light", "dark")
IN_README = {"overview": (1100, 720, "light"), "entry": (1100, 720, "dark"), "entries": (360, 720, "light")}


def main(*args: str) -> None:
    """Make the pictures."""
    with ExitStack() as opened:
        workflow = filled(Path(opened.enter_context(TemporaryDirectory())))
        browser, served = opened.enter_context(chromium()), opened.enter_context(hosting(workflow))
        visit = opened.enter_context(visiting(browser, served))
        if args == ("--write",):
            for name, (width, height, theme) in IN_README.items():
                picture(visit, name, ROOT / "docs" / f"inspector-{name}.png", width=width, theme=theme, height=height)
            return
        (target := Path(args[0])).mkdir(parents=True, exist_ok=True)
        for name, width, theme in product(SHOWN, WIDTHS, THEMES):
            picture(visit, name, target / f"{name}-{width}-{theme}.png", width=width, theme=theme)


def picture(visit: Visit, name: str, path: Path, *, width: int, theme: str, height: int | None = None) -> None:
    """One page, or its beginning if a height is given."""
    visit.page.set_viewport_size({"width": width, "height": height or 900})
    visit.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    visit.go(SHOWN[name])
    visit.look_everywhere()
    visit.page.evaluate("scrollTo(0, 0)")
    visit.page.screenshot(path=path, full_page=height is None)


if __name__ == "__main__":
    main(*sys.argv[1:])
