"""Two machines share a bucket: each gets the other's changes, and one that lost its disk recovers.

The program starts a local S3 server for the bucket. It needs moto: pip install 'moto[s3,server]'
Run it: python examples/sync_s3.py
"""

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import memfiles

try:
    import boto3
    from moto.server import ThreadedMotoServer
except ImportError:
    sys.exit("This example starts a local S3 server: pip install 'moto[s3,server]', then run it again.")

WORKFLOW = Path(__file__).with_name("workflow.yaml").read_text()
NOTES = "customer-notes-7f3a"


def machine(folder: Path, bucket_url: str) -> Path:
    """A folder with the same workflow as every other machine; the mirror's URL is all they share."""
    folder.mkdir()
    mirror = f'directory: .memory\n  mirror: {{url: "{bucket_url}"}}'
    (folder / "workflow.yaml").write_text(WORKFLOW.replace("directory: .memory", mirror))
    return folder / "workflow.yaml"


def main(folder: Path, bucket_url: str) -> None:
    """Append on both machines, compare them, then lose a disk."""
    one, two = machine(folder / "one", bucket_url), machine(folder / "two", bucket_url)
    with memfiles.open(one, watch=False) as here, memfiles.open(two, watch=False) as there:
        here.manager.append(NOTES, "- Ada is on Pro.\n")
        there.manager.append(NOTES, "- Bob is on Free.\n")
        for memory in (here, there, here):  # fetch the other machine's changes and merge them
            memory.sync.pull(timeout=30)
        print(f"both machines have the same: {here.manager.read(NOTES) == there.manager.read(NOTES)}")

    shutil.rmtree(folder / "one" / ".memory")
    with memfiles.open(one, watch=False) as again:
        print(f"after the loss of a disk: {again.report[NOTES].status}")
        print(again.manager.read(NOTES), end="")


if __name__ == "__main__":
    os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="only", AWS_DEFAULT_REGION="us-east-1")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="agents")
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary), f"s3://agents/support-desk?endpoint={endpoint}")
    server.stop()
