"""The demo: a support desk whose agent keeps its memory across a refusal, a crash, a restart and a lost disk.

``workflow.yaml`` declares it, ``support_desk`` has the model's script, and ``command`` plays the steps and prints them.
"""
