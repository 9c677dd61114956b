"""Memory files: the manager, its live records and their restore from a workflow.

Other rooms use ``manager``, ``restore_report``, ``restorer`` and ``user_files``.
"""
