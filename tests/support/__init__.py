"""What the tests of several rooms share."""

from pathlib import Path

ROOT = Path(__file__).parents[2]  # the folder of the checkout: child processes import memfiles and tests from it
