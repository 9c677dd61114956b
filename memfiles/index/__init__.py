"""The derived index of entries: their rows and texts in one small database, which can be deleted at any time.

The records are the truth. What the index says of them is compared with the disk wherever it may have fallen behind,
and whatever cannot be trusted is built anew from the records.
"""
