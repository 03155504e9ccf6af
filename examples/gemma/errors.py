class ExampleError(Exception):
    """What the user is told in one line on stderr; the program then ends with exit code 1."""
