"""The URL of an S3 mirror: what it may say, and what is refused before anything is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memfiles.errors import InvalidArgument
from mirrors.s3.location import S3Location


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://acme", S3Location("acme")),
        ("s3://acme/", S3Location("acme")),
        ("S3://acme/support-desk/", S3Location("acme", "support-desk")),
        ("s3://Acme.Old_Bucket/a/b", S3Location("Acme.Old_Bucket", "a/b")),
        ("s3://acme/two%20words/%C3%A9", S3Location("acme", "two words/é")),
        (
            "s3://acme/p?endpoint=http://127.0.0.1:9000&region=eu-central-1&profile=work&sse=aws:kms",
            S3Location("acme", "p", "http://127.0.0.1:9000", "eu-central-1", "work", "aws:kms"),
        ),
        ("s3://acme?endpoint=https%3A%2F%2Fs3.example.org", S3Location("acme", endpoint="https://s3.example.org")),
    ],
)
def test_a_url_is_read(url: str, location: S3Location) -> None:
    """Bucket, prefix and the four parameters; the path is percent-encoded where needed."""

    assert location == S3Location.parse(url)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("s3://", "needs a bucket"),
        ("s3:///prefix", "needs a bucket"),
        ("s3://ab", "needs a bucket"),
        ("s3://acme:9000/p", "put the host and port in [?]endpoint="),
        ("s3://acme/../other", "empty segment, '[.]' or '[.][.]'"),
        ("s3://acme//p", "empty segment"),
        ("s3://acme/a%2F%2Fb", "empty segment"),
        ("s3://acme/a%0Ab", "character that cannot be printed"),
        ("s3://acme/%ff", "character that cannot be printed"),
        ("s3://acme/p#part", "has a fragment"),
        ("s3://acme?Region=eu-west-1", "no parameter 'Region'; known are: endpoint, profile, region, sse"),
        ("s3://acme?region=a&region=b", "region .* must be given once"),
        ("s3://acme?region=", "region .* must be given once, with a value"),
        ("s3://acme?region", "is not name=value"),
        ("s3://acme?region=EU%20WEST", "written like eu-central-1"),
        ("s3://acme?sse=none", "one of AES256, aws:kms, aws:kms:dsse"),
        ("s3://acme?endpoint=127.0.0.1:9000", "a URL like https://host"),
        ("s3://acme?endpoint=ftp://host", "a URL like https://host"),
        ("s3://acme?endpoint=https://host:99999", "a URL like https://host"),
        ("s3://acme?endpoint=https://", "a URL like https://host"),
    ],
)
def test_a_wrong_url_is_refused(url: str, complaint: str) -> None:
    """The message says what is wrong and what is known."""
    with pytest.raises(InvalidArgument, match=complaint):
        S3Location.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAHUSHHUSH:hushhush@acme/p",
        "s3://hushhush@acme/p",
        "s3://acme?secret_access_key=hushhush",
        "s3://acme?token=hushhush",
        "s3://acme?endpoint=https://user:hushhush@host",
    ],
)
def test_a_credential_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    """It would be read by everyone who reads the workflow, and again by everyone who reads the log."""
    with pytest.raises(InvalidArgument) as caught:
        S3Location.parse(url)

    assert "hush" not in str(caught.value).lower()
    assert "credentials" in str(caught.value) or "environment" in str(caught.value)


def test_reading_a_url_loads_no_boto3() -> None:
    """Nor does making the mirror: only its first use does."""
    program = """
import sys
from mirrors.s3.opening import open_url
open_url("s3://acme/p?region=eu-central-1")
print("boto3" in sys.modules, "botocore" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=180)

    assert "False False\n" == done.stdout
