"""boto3 clients for a mirror: timeouts of seconds, not minutes, and settings for endpoints other than AWS.

Credentials come only from boto3's own chain (environment, shared configuration, role).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.handlers import add_expect_header
from botocore.utils import parse_timestamp

from mirrors.s3.failures import failures
from mirrors.s3.location import S3Location

TRANSFERS = 32  # calls at a time; more gain nothing (about 2 ms of processor time each, under the interpreter's lock)
CONNECT_SECONDS = 3
READ_SECONDS = 15

_PATIENT = Config(
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=TRANSFERS,
)
# Other servers support neither buckets in host names nor the checksums that boto3 began to send in 2025.
_ELSEWHERE = _PATIENT.merge(
    Config(
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
)


def make_session(location: S3Location) -> Any:
    """A boto3 session with the profile and the region of ``location``; it provides the credentials."""
    inner = botocore.session.get_session()
    inner.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time_of)
    with failures(location.bucket):
        return boto3.session.Session(profile_name=location.profile, region_name=location.region, botocore_session=inner)


def make_client(location: S3Location, *, config: Config | None = None, session: Any = None) -> Any:
    """A client for ``location``, which threads may share; ``config`` overrides single settings."""
    own = config or Config()
    session = session or make_session(location)
    with failures(location.bucket):
        if location.endpoint is not None:
            # AWS_ENDPOINT_URL_S3 in the environment must not send a named mirror elsewhere
            settings = Config(ignore_configured_endpoint_urls=True).merge(_settings(location.endpoint)).merge(own)
            client = session.client("s3", endpoint_url=location.endpoint, config=settings)
        else:
            client = session.client("s3", config=_PATIENT.merge(own))
            if not is_aws(client.meta.endpoint_url):  # boto3's configuration names another endpoint
                client = session.client("s3", config=_ELSEWHERE.merge(own))
    # Waiting for the server's "100 Continue" costs every put a second round trip, and bodies are small.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register("before-call.s3.HeadBucket", _ask_once)
    return client


def frozen_credentials(session: Any) -> Any:
    """boto3's credentials, valid for some minutes (``access_key``, ``secret_key``, ``token``); None if it has none."""
    with failures("the credentials"):
        credentials = session.get_credentials()
        return credentials.get_frozen_credentials() if credentials is not None else None


def is_aws(endpoint: str) -> bool:
    """Whether an endpoint is Amazon's own."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _ask_once(params: dict[str, Any], **_: Any) -> None:
    """Have botocore take a redirect of HEAD for an answer.

    It asks for a bucket's region with HEAD after a redirect, and again after a redirect of that, without an end.
    """
    params.get("context", {}).setdefault("s3_redirect", {})["redirected"] = True


def _time_of(text: Any) -> datetime:
    """Parse a timestamp. botocore's own parser takes half the time of a list."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return parse_timestamp(text)  # type: ignore[no-any-return]


def _settings(endpoint: str) -> Config:
    return _PATIENT if is_aws(endpoint) else _ELSEWHERE
