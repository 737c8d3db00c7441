"""A certificate authority for tests, and the certificates that targets get wrong."""

import datetime as dt
import itertools
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_numbers = itertools.count(1)


class Authority:
    """Signs what it is asked to, and writes key and certificate into a folder."""

    def __init__(self, folder: Path) -> None:
        """Make a key and the certificate that callers may trust."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Tests")
        own = _begun(self._name, self._name, self._key.public_key(), (-1, 1))
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = folder / "authority.pem"
        signed = own.sign(self._key, hashes.SHA256())
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def context(
        self, hosts: Sequence[str], *, days: tuple[int, int] = (-1, 1), itself: bool = False
    ) -> ssl.SSLContext:
        """Return a server's context for these names; `itself`: it vouches for itself alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named("target")
        begun = _begun(name, name if itself else self._name, key.public_key(), days)
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        signed = begun.add_extension(names, critical=False).sign(
            key if itself else self._key, hashes.SHA256()
        )
        file = self._folder / f"target-{next(_numbers)}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _begun(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(next(_numbers))
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
    )
