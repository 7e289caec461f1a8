"""The URI of a directory in a store, such as ``s3://bucket/prefix?region=eu-west-1``."""

import re
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from orchestrator.errors import StoreError, shorten

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: ``c:/`` is a path


def is_uri(text: str) -> bool:
    """Whether ``text`` is a URI, not a local path.

    >>> is_uri("s3://bucket/runs"), is_uri("results/mine")
    (True, False)
    """
    return _URI.match(text) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """A parsed URI; ``path`` has no slash at its end, ``query`` holds the store's options as they were given."""

    scheme: str
    authority: str = ""
    path: str = ""
    query: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that ``text`` names.

        Raises:
            StoreError: it is no URI, or it holds a password, which the run's manifest would keep for all to read.
        """
        if not is_uri(text):
            raise StoreError(f"'{shorten(text)}' is not a URI such as s3://bucket/prefix")
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise StoreError(f"'{shorten(text)}' is not a URI: {error}") from error
        user, _, host = parts.netloc.rpartition("@")
        if ":" in user or (user and parts.scheme == "s3"):
            raise StoreError(
                f"{parts.scheme}://…@{host}{parts.path}: no credentials in a URI, the manifest would keep them; use "
                "the store's environment variables or its configuration file"
            )
        return cls(scheme=parts.scheme, authority=parts.netloc, path=parts.path.rstrip("/"), query=parts.query)

    def __str__(self) -> str:
        """Return the URI."""
        return f"{self.scheme}://{self.authority}{self.path}{'?' if self.query else ''}{self.query}"

    @property
    def name(self) -> str:
        """The last part of the path; empty at a store's root."""
        return unquote(self.path.rpartition("/")[2])

    @property
    def parent(self) -> Self:
        """The directory above."""
        return replace(self, path=self.path.rpartition("/")[0])

    @property
    def plain(self) -> str:
        """Bucket and path, as filesystems take them."""
        return unquote(f"{self.authority}{self.path}")

    @property
    def options(self) -> dict[str, str]:
        """The query's values by their names."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def child(self, name: str) -> Self:
        """The directory ``name`` under this one."""
        return replace(self, path=f"{self.path}/{name}")

    def with_option(self, name: str, value: str) -> Self:
        """Return the address with a value added to the query, unless it has one of that name."""
        if name in self.options:
            return self
        return replace(self, query="&".join(part for part in (self.query, f"{name}={value}") if part))
