"""What a compacted file says of itself: which files its rows came from. A reader skips these where they still exist."""

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

COMPACTED_KEY = b"compacted"
COMPACTED = re.compile(r"compacted-(\d+)\.parquet")


def compacted_name(number: int) -> str:
    """Return the name of a compacted file in its device's directory; numbers are never used again.

    >>> compacted_name(7)
    'compacted-00007.parquet'
    """
    return f"compacted-{number:05}.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compacted:
    """What a compacted file has taken in.

    replaces: names of files in the same directory: of Shards, and of the compacted files that held some of these.
    full: it is as large as one may be, and is not merged again.
    """

    replaces: tuple[str, ...]
    full: bool = False

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes]) -> Self | None:
        """Read it from a file's metadata; None for a Shard.

        Raises:
            ValueError: it is damaged. Metadata have no checksum of Parquet's, so it has one of its own.
        """
        text = metadata.get(COMPACTED_KEY)
        if text is None:
            return None
        try:
            digest, _, packed = text.partition(b":")
            content = zlib.decompress(base64.b64decode(packed, validate=True))
        except (zlib.error, binascii.Error):
            digest, content = b"", b" "
        if hashlib.sha256(content).hexdigest().encode() != digest:
            raise ValueError("its list of shards is damaged")
        found = json.loads(content)
        return cls(replaces=tuple(found["replaces"]), full=found["full"])

    def metadata(self) -> dict[bytes, bytes]:
        """Return it as metadata of a file."""
        content = json.dumps({"replaces": self.replaces, "full": self.full}).encode()
        packed = base64.b64encode(zlib.compress(content))
        return {COMPACTED_KEY: hashlib.sha256(content).hexdigest().encode() + b":" + packed}
