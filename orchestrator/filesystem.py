"""Opens the filesystem that a URI names: pyarrow's own, else fsspec's; with short timeouts wherever they can be set."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
from pyarrow import fs

from orchestrator.address import Address
from orchestrator.errors import StoreError, unknown

CONNECT_S = 3.0
STALL_S = 10.0
"""Seconds without a byte after which a request is given up."""
ATTEMPTS = 2
"""The library's own; whoever can wait longer tries again with growing pauses."""
GCS_RETRY_S = 5

S3_OPTIONS = ("region", "scheme", "endpoint_override", "force_virtual_addressing", "tls_ca_file_path")
S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
S3_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
NATIVE = ("file", "s3", "gs", "gcs", "hdfs", "viewfs")
"""What pyarrow opens. Not Azure: without credentials its library ends the whole process, and the sweep with it."""
OBJECT_STORES = ("s3", "gcs", "gs", "s3a", "abfs", "abfss", "az", "adl", "oss", "oci", "hf")
"""Stores in which an object appears only when all of it is there; in others a file is renamed into place."""


def open_filesystem(address: Address) -> tuple[fs.FileSystem, str]:
    """Return the filesystem and the path in it. It may ask the network (an S3 bucket's region), for some seconds.

    Raises:
        StoreError: the scheme or an option is unknown, or its library is not installed.
    """
    if address.scheme == "s3":
        return _s3(address), address.plain
    if address.scheme not in NATIVE:
        return _fsspec(address)
    limited = address.with_option("retry_limit_seconds", str(GCS_RETRY_S)) if address.scheme[0] == "g" else address
    try:
        found, path = fs.FileSystem.from_uri(str(limited))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StoreError(f"{address}: {error}") from error
    return found, path


def is_atomic(filesystem: fs.FileSystem) -> bool:
    """Whether a write that breaks off leaves nothing under the file's own name."""
    protocols = fsspec_of(filesystem).protocol if is_fsspec(filesystem) else filesystem.type_name
    return any(name in OBJECT_STORES for name in ((protocols,) if isinstance(protocols, str) else protocols))


def is_fsspec(filesystem: fs.FileSystem) -> bool:
    """Whether it is fsspec's, behind pyarrow's interface."""
    return isinstance(filesystem, fs.PyFileSystem)


def fsspec_of(filesystem: fs.FileSystem) -> Any:
    """Return fsspec's filesystem behind pyarrow's interface."""
    return filesystem.handler.fs


def _s3(address: Address) -> fs.S3FileSystem:
    options = address.options
    for name in options:
        if name not in S3_OPTIONS:
            raise StoreError(f"{address}: {unknown('option', name, S3_OPTIONS)}")
    options = _endpoint(os.environ) | options
    # Newer versions can write a small object with one request, which leaves nothing behind when it breaks off.
    one_request = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}
    given: dict[str, Any] = {name: options[name] for name in S3_OPTIONS if name in options}
    if "force_virtual_addressing" in given:
        given["force_virtual_addressing"] = given["force_virtual_addressing"].lower() in ("true", "1")
    if not ("region" in given or "endpoint_override" in given or any(name in os.environ for name in S3_REGIONS)):
        given["region"] = fs.resolve_s3_region(address.authority)
    return fs.S3FileSystem(
        connect_timeout=CONNECT_S,
        request_timeout=STALL_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **one_request,
        **given,
    )


def _endpoint(environment: Mapping[str, str]) -> dict[str, str]:
    """Where the environment says that S3 is: the variables of the AWS tools, which pyarrow does not read."""
    url = next((environment[name] for name in S3_ENDPOINTS if environment.get(name)), "")
    parts = urlsplit(url)
    return {"endpoint_override": parts.netloc + parts.path.rstrip("/"), "scheme": parts.scheme} if parts.netloc else {}


def _fsspec(address: Address) -> tuple[fs.FileSystem, str]:
    try:
        found, path = fsspec.core.url_to_fs(str(address))
    except ValueError as error:  # the protocol is not known
        hint = unknown("scheme", address.scheme, NATIVE)
        raise StoreError(f"{address}: {hint}, and what fsspec knows") from error
    except ImportError as error:  # which package to install
        raise StoreError(f"{address}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path.rstrip("/")
