"""A model of several machines that share one mirror, over every operation of the library.

A *script* is a list of steps such as ``A append notes t1`` or ``B sync``, made from a seed. The *world* carries it out
on real memory directories, and the *oracle* says afterwards what may not be so. A script that fails is *shrunk* to the
fewest steps that fail in the same way::

    python -m tests.model --seed 17               one script: its steps and what became of each
    python -m tests.model --count 20000           many; prints those that fail, shrunk
    python -m tests.model failure.txt             a script from a file

Read ``script`` for the steps, ``oracle`` for the promises, ``world`` for how both meet.
"""
