"""`memfiles doctor`: checks of the directory, the entries and the mirror."""
