"""Signed and encrypted mirrors: envelopes around the objects of any mirror, so that a bucket need not be trusted.

``envelope`` has the keys and the format, ``mirror`` the wrappers that seal and open, and ``bucket`` what is done to all
objects of a mirror at once: signing them, changing the key, and opening a copy of them.
"""

from __future__ import annotations
