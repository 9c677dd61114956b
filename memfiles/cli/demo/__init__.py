"""The demo: a support desk whose agent keeps its memory across a refusal, a crash, a restart and a lost disk.

``support_desk`` is the workflow and the model's script, ``story`` plays the steps for an ``Audience``, and ``command``
prints them.
"""
