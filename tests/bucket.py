"""An S3 server on loopback that can go away and come back with all that it held."""

import logging
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_EC2_METADATA_DISABLED": "true"}
NAME = "sweeps"


class Bucket:
    """One bucket, read here by another library than the one under test."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.port = free_port()
        self._server: BaseWSGIServer | None = None
        self.up()
        self._client("PUT", NAME)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def uri(self, path: str, bucket: str = NAME) -> str:
        return f"s3://{bucket}/{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def up(self) -> None:
        application = DomainDispatcherApplication(create_backend_app)  # what it holds outlives the server
        self._server = make_server("127.0.0.1", self.port, application, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None

    def contents(self, prefix: str) -> dict[str, bytes]:
        """Every object under ``prefix/``, by the rest of its key."""
        s3 = self._s3()
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=NAME, Prefix=f"{prefix}/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        bodies = {key: s3.get_object(Bucket=NAME, Key=key)["Body"] for key in keys}
        s3.close()
        return {key.removeprefix(f"{prefix}/"): body.read() for key, body in bodies.items()}

    def unfinished(self) -> int:
        """Uploads in parts that are under way, or were broken off."""
        s3 = self._s3()
        count = len(s3.list_multipart_uploads(Bucket=NAME).get("Uploads", ()))
        s3.close()
        return count

    def put(self, key: str, content: bytes) -> None:
        s3 = self._s3()
        s3.put_object(Bucket=NAME, Key=key, Body=content)
        s3.close()

    def remove(self, key: str) -> None:
        s3 = self._s3()
        s3.delete_object(Bucket=NAME, Key=key)
        s3.close()

    @contextmanager
    def closed_to_strangers(self) -> Iterator[None]:
        """While this is open, credentials are checked: none are known."""
        self._client("POST", "moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self._client("POST", "moto-api/reset-auth", b"inf")

    def _s3(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )

    def _client(self, method: str, path: str, content: bytes = b"") -> None:
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self.endpoint}/{path}", content, headers, method=method)
        urllib.request.urlopen(request).close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(state: str) -> dict[str, str]:
    """What a user's shell has: keys, and a state directory of the test's own."""
    return {**os.environ, **KEYS, "XDG_STATE_HOME": state}
