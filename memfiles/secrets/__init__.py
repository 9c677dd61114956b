"""The secrets gate: rules that find credentials in a text before it is stored, and the policies for a match.

Other rooms use ``gate``.
"""
