"""Records in PostgreSQL: one truth for workers on many machines, by the contract of ``storage.record_store``.

psycopg, of the extra ``postgres``, is imported with the modules of this room alone, and they with the first store.
"""
