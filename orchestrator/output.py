"""Standard output as a console that leaves it to the caller what a reader who has gone means."""

from rich.console import Console


class Output(Console):
    """Standard output, whose end is for the caller to judge: rich would end the program with a code of its own."""

    def on_broken_pipe(self) -> None:
        """Leave the error, which is being handled, to the caller."""
        raise
