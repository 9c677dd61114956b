"""The inspector: a local web page on which a person sees, corrects and forgets what the memory holds.

``memfiles ui`` opens it. ``guard`` lets in nobody but the person who started it; ``inspected_memory`` is the memory as
that person may see it; ``live`` tells open pages of changes; ``server`` joins the pages, each of which only asks the
library and fills a template. Nothing here decides what may be seen or changed but the ceiling of the inspected memory
and its read-only switch.

Other rooms use ``server``.
"""
