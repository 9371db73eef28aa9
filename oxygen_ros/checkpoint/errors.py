"""What is wrong with a policy folder, said so that its owner can mend it."""


class CheckpointError(Exception):
    """A folder that cannot be used: the message names the file or tensor, what was found and what was expected."""
