"""A boto3 client as a mirror needs it: patient for seconds, not minutes, and at home on endpoints other than AWS.

Credentials come from boto3's own chain (environment, shared configuration, role) and from nowhere else.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.handlers import add_expect_header

from mirrors.s3.failures import failures
from mirrors.s3.location import S3Location

TRANSFERS = 32  # calls at a time; more gain nothing (about 2 ms of processor time each, under the interpreter's lock)

_PATIENT = Config(
    connect_timeout=3,
    read_timeout=15,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=TRANSFERS,
)
# Other servers know no bucket as a host name, and not the checksums that boto3 began to send in 2025.
_ELSEWHERE = _PATIENT.merge(
    Config(
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
)


def make_client(location: S3Location, *, config: Config | None = None) -> Any:
    """A client for ``location``, safe to be shared by threads; ``config`` overrides single settings."""
    own = config or Config()
    with failures(location.bucket):
        session = boto3.session.Session(profile_name=location.profile, region_name=location.region)
        if location.endpoint is not None:
            # AWS_ENDPOINT_URL_S3 in the environment must not send a named mirror elsewhere
            settings = Config(ignore_configured_endpoint_urls=True).merge(_settings(location.endpoint)).merge(own)
            client = session.client("s3", endpoint_url=location.endpoint, config=settings)
        else:
            client = session.client("s3", config=_PATIENT.merge(own))
            if not is_aws(client.meta.endpoint_url):  # boto3's configuration names another endpoint
                client = session.client("s3", config=_ELSEWHERE.merge(own))
    # The server's go-ahead before a body costs a second round trip for every put, and bodies are small.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


def is_aws(endpoint: str) -> bool:
    """Whether an endpoint is Amazon's own, which keeps every promise that S3 makes."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _settings(endpoint: str) -> Config:
    return _PATIENT if is_aws(endpoint) else _ELSEWHERE
