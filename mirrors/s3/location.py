"""The location of an S3 mirror: ``s3://bucket/prefix?endpoint=...&region=...&profile=...&sse=...``.

The rule this file guards: a wrong URL is refused when it is parsed, before boto3 is loaded and before any request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from memfiles.errors import InvalidArgument
from memfiles.sync.mirror import check_key
from mirrors.urls import parse_url

ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket, the prefix of the mirror's keys in it, and how to reach it.

    ``endpoint`` is a URL (None: AWS, or the one in boto3's configuration); ``region`` and ``profile`` are boto3's;
    ``sse`` is the server-side encryption to request, one of ``ENCRYPTIONS`` (a KMS key is the bucket's default).
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    sse: str | None = None

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise InvalidArgument(
                "an s3:// mirror needs a bucket of 3-63 letters, digits, '.', '_' or '-': s3://bucket"
            )
        if self.prefix:
            check_key(self.prefix)
        if self.endpoint is not None:
            _check_endpoint(self.endpoint)
        if self.region is not None and not _REGION.fullmatch(self.region):
            raise InvalidArgument("the region of an s3:// mirror is written like eu-central-1")
        if self.sse is not None and self.sse not in ENCRYPTIONS:
            raise InvalidArgument(f"the sse of an s3:// mirror is one of {', '.join(ENCRYPTIONS)}")

    @classmethod
    def parse(cls, url: str) -> S3Location:
        """Parse a URL; a trailing slash is ignored."""
        parsed = parse_url(url, known=("endpoint", "profile", "region", "sse"))
        if parsed.port is not None:
            raise InvalidArgument("an s3:// mirror names a bucket, not a host: put the host and port in ?endpoint=")
        return cls(parsed.host, parsed.path.removeprefix("/").removesuffix("/"), **parsed.options)


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in {"http", "https"} and bool(_HOST.fullmatch(parts.hostname or "")) and parts.port != 0
    except ValueError:
        usable = False
    else:
        if "@" in parts.netloc:
            raise InvalidArgument("the endpoint of an s3:// mirror holds credentials; boto3 takes them from elsewhere")
        usable = usable and not parts.query and not parts.fragment
    if not usable:
        raise InvalidArgument("the endpoint of an s3:// mirror is a URL like https://host or http://127.0.0.1:9000")
