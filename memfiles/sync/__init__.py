"""The sync: keeps the memory directory and a mirror equal, off the write path.

``engine`` runs it, ``dispatcher`` says what is due when, ``reconciler`` reconciles a record with its copy in the
mirror, and ``ledger`` keeps what a mirror with which keys acknowledged. Mirrors import the contract from ``mirror``.

Other rooms use ``conflicts``, ``downloads``, ``engine``, ``ledger``, ``mirror``, ``replica`` and ``status``.
"""
