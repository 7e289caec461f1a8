"""What rich draws, without the blanks that fill up cells where it goes to a file or a pipe."""

import re
from collections.abc import Callable

from rich.console import Console


def write(console: Console, draw: Callable[[Console], None]) -> None:
    """Print what ``draw`` prints to the console; without blanks at the ends of lines where it is no terminal."""
    with console.capture() as drawn:
        draw(console)
    text = drawn.get()
    console.file.write(text if console.is_terminal else re.sub(" +$", "", text, flags=re.MULTILINE))
