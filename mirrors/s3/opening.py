"""The opening of an S3 mirror by its URL, without boto3: the entry point of ``s3://``."""

from __future__ import annotations

from memfiles.sync.mirror import Mirror
from mirrors.lazy import LazyMirror
from mirrors.s3.location import S3Location


def open_url(url: str) -> Mirror:
    """The mirror at an ``s3://`` URL; boto3 loads on first use."""
    location = S3Location.parse(url)

    def connect() -> Mirror:
        from mirrors.s3.mirror import connect  # late: boto3 takes 0.3 s to load and set up

        return connect(location)

    return LazyMirror(connect)
