"""X.509 for programs that serve each other inside one installation: an authority, and server certificates from it.

Promises: keys are elliptic (P-256, made in a millisecond), names always stand in subjectAltName (Kubernetes refuses a
bare common name since 1.19), key files are never readable by others, and nothing here talks to anybody.
"""

import ipaddress
import os
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_MARGIN = timedelta(hours=1)  # clocks of a cluster differ; a certificate from the future would be refused


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write ``NAME.crt`` and ``NAME.key`` (mode 0600) into a folder, each in one step, and return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        _replace(certificate, self.certificate, 0o644)
        _replace(key, self.key, 0o600)
        return certificate, key

    def lifetime(self) -> tuple[datetime, datetime]:
        """First and last moment of validity, in UTC.

        Raises:
            ValueError: the certificate is not PEM.
        """
        certificate = x509.load_pem_x509_certificate(self.certificate)
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc

    def alternative_names(self) -> frozenset[str]:
        """Host names and addresses the certificate is for.

        Raises:
            ValueError: the certificate is not PEM.
        """
        certificate = x509.load_pem_x509_certificate(self.certificate)
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()
        return frozenset(str(entry.value) for entry in found if isinstance(entry, x509.DNSName | x509.IPAddress))


class Authority(msgspec.Struct, frozen=True):
    """A certificate authority; ``pair.certificate`` is what clients trust (a webhook's ``caBundle`` before base64)."""

    pair: KeyPair

    @classmethod
    def create(cls, common_name: str, *, days: int = 3650, now: datetime | None = None) -> "Authority":
        """Make a new self-signed authority, valid from an hour before ``now`` (default: the clock) for ``days``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = (
            _builder(name, name, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
        )
        return cls(_pair(builder.sign(key, hashes.SHA256()), key))

    @classmethod
    def load_or_create(cls, folder: Path, name: str = "ca", *, common_name: str = "hcs") -> "Authority":
        """Read ``NAME.crt`` and ``NAME.key`` from a folder, or make an authority and write it there."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        if certificate.exists() and key.exists():
            return cls(KeyPair(certificate.read_bytes(), key.read_bytes()))
        authority = cls.create(common_name)
        authority.pair.write(folder, name)
        return authority

    def issue(
        self, names: Sequence[str], *, client: bool = False, days: int = 3650, now: datetime | None = None
    ) -> KeyPair:
        """Issue a server certificate for host names and addresses, all as subjectAltName.

        Args:
            names: host names and addresses.
            client: whether its holder may also show it as a client.
            days: how long it is valid.
            now: valid from an hour before this time (default: the clock).

        Raises:
            ValueError: no name was given, or the authority's own pair cannot be read.
        """
        if not names:
            raise ValueError("a server certificate needs at least one host name or address")
        issuer = x509.load_pem_x509_certificate(self.pair.certificate)
        issuer_key = _private_key(self.pair.key)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if client else [])]
        builder = (
            _builder(subject, issuer.subject, key.public_key(), days, now)
            .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        return _pair(builder.sign(issuer_key, hashes.SHA256()), key)

    def issued(self, pair: KeyPair) -> bool:
        """Whether this authority signed a certificate, and the certificate's key belongs to it.

        Raises:
            ValueError: one of the two cannot be read.
        """
        issuer = x509.load_pem_x509_certificate(self.pair.certificate)
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        if certificate.issuer != issuer.subject:
            return False
        try:
            certificate.verify_directly_issued_by(issuer)
        except InvalidSignature:
            return False
        return certificate.public_key() == _private_key(pair.key).public_key()

    def client_context(self) -> ssl.SSLContext:
        """A TLS context for clients that trust this authority and nothing else."""
        return ssl.create_default_context(cadata=self.pair.certificate.decode())


def service_names(service: str, namespace: str) -> list[str]:
    """Names a webhook's certificate must carry: the API server checks ``SERVICE.NAMESPACE.svc``; loopback for tests."""
    return [f"{service}.{namespace}.svc", f"{service}.{namespace}", service, "localhost", "127.0.0.1"]


def _replace(path: Path, content: bytes, mode: int) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    partial.replace(path)


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the private key is not an elliptic-curve key")
    return key


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime | None
) -> x509.CertificateBuilder:
    start = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _MARGIN)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
