"""The S3 mirror: where it is, how it is spoken to, and what it promises.

    location     the URL, and what it may say
    client       a boto3 client with the settings that matter
    bucket       the requests that are made, each checked
    fast         reading through obstore, where it is installed
    failures     what boto3 raises, as a mirror says it
    conditions   whether an endpoint honours conditional requests
    mirror       the promises of ``Mirror``, kept with all of these

Only ``location`` can be imported without boto3.
"""
