"""A master key in AWS KMS, or what speaks as it does: it never leaves the service."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from commandside.ports import Unavailable
from infra.keys.port import MasterKeyError, WrongMaster

CONNECT_S: Final = 3
READ_S: Final = 5
TRIES: Final = 3
_CONTEXT: Final = "tocsin"
_NOT_OURS: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_REFUSED: Final = frozenset(
    {
        "AccessDeniedException",
        "DisabledException",
        "InvalidArnException",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
        "UnrecognizedClientException",
        "ValidationException",
    }
)
"""What no second try mends: the operator's business."""


class KmsMaster:
    """`infra.keys.port.MasterKey`; needs kms:DescribeKey, kms:Encrypt and kms:Decrypt."""

    def __init__(self, key: str, *, region: str = "", endpoint: str = "") -> None:
        """`key`: id, alias (`alias/…`) or ARN; credentials are those that the machine has.

        Raises MasterKeyError, Unavailable.
        """
        arn = key.split(":")
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"total_max_attempts": TRIES, "mode": "standard"},
        )
        try:
            self._client: Any = boto3.session.Session().client(
                "kms",
                region_name=region or (arn[3] if len(arn) > 4 else None),  # noqa: PLR2004 - arn:aws:kms:REGION:…
                endpoint_url=endpoint or None,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            raise MasterKeyError(f"keys.master_kms {key}: {error}; keys.kms_region?") from error
        with _translated(key):
            # An alias may come to name another key: what has wrapped is known by its ARN.
            self._arn = self._client.describe_key(KeyId=key)["KeyMetadata"]["Arn"]
        self.name = f"kms:{self._arn}"

    def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return a key wrapped by the service."""
        with _translated(self._arn):
            found = self._client.encrypt(
                KeyId=self._arn, Plaintext=key, EncryptionContext={_CONTEXT: context.hex()}
            )
            return bytes(found["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return it again; raises WrongMaster."""
        with _translated(self._arn):
            found = self._client.decrypt(
                KeyId=self._arn,
                CiphertextBlob=wrapped,
                EncryptionContext={_CONTEXT: context.hex()},
            )
            return bytes(found["Plaintext"])


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in _NOT_OURS:
            raise WrongMaster(f"KMS: {code}") from error
        if code in _REFUSED:
            raise MasterKeyError(f"master key {key}: KMS answers {code}") from error
        raise Unavailable(f"KMS: {code}") from error
    except BotoCoreError as error:
        raise Unavailable(f"KMS: {error}") from error
