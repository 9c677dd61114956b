"""The S3 mirror.

    opening         ``open_url``, the entry point of s3:// URLs
    location        the s3:// URL: parsed and checked
    client          boto3 clients: timeouts, retries, settings for other endpoints
    bucket          requests to one bucket, each answer checked
    obstore_reads   faster reads through obstore, where it is installed
    failures        boto3's errors as errors of a mirror
    conditions      a probe for endpoints that ignore conditional requests
    mirror          ``S3Mirror``, which keeps the promises of ``Mirror`` with all of these

Only ``opening`` and ``location`` can be imported without boto3.
"""
