"""Certificates of a run of `contextc watch`: an authority that exists in memory only, and files that make a program
trust it.

Its certificate has name constraints: it counts for the hosts of recorded vendors only. Its key is never written
anywhere, so no other process can use the certificate that the started program trusts.
"""

import datetime
import ipaddress
import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from contextc._installed_packages import importing
from contextc.proxy.client_setup import client_tables, find_path

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

# ── the authority ─────────────────────────────────────────────────────────────────────────────────────────────────────


AUTHORITY_NAME = "contextc watch, for one run"
VALID_DAYS = 365
NO_ADDRESSES = ("0.0.0.0/0", "::/0")
KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


class CertificateAuthority:
    """An authority for hosts. A domain among them stands for all names below it, too."""

    def __init__(self, hosts: Iterable[str]) -> None:
        with importing("cryptography", extra="watch"):
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec

        self._key, self._host_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self._contexts: dict[str, ssl.SSLContext] = {}
        names = [_constraint(each) for each in sorted(set(hosts))]
        has_addresses = any([isinstance(each, x509.IPAddress) for each in names])
        no_addresses = [x509.IPAddress(ipaddress.ip_network(each)) for each in NO_ADDRESSES]
        constraints = x509.NameConstraints(names, None if has_addresses else no_addresses)
        self._certificate = _sign(
            self._key,
            AUTHORITY_NAME,
            self._key,
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_key_usage("key_cert_sign", "crl_sign"), True),
            (constraints, True),
        )

    @property
    def certificate(self) -> str:
        """The certificate of the authority, in PEM."""
        return _pem(self._certificate)

    def server_context(self, host: str) -> ssl.SSLContext:
        """Return the TLS settings of a server that is a host."""
        if host not in self._contexts:
            self._contexts[host] = self._make_context(host)
        return self._contexts[host]

    def _make_context(self, host: str) -> ssl.SSLContext:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID

        address = _address(host)
        name = x509.DNSName(host) if address is None else x509.IPAddress(address)
        certificate = _sign(
            self._key,
            "contextc watch",
            self._host_key,
            (x509.SubjectAlternativeName([name]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        )
        password = secrets.token_bytes(16)
        key = self._host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        with _as_file(_pem(certificate).encode()) as chain_path, _as_file(key) as key_path:
            context.load_cert_chain(chain_path, key_path, password)
        return context


def _sign(
    key: "EllipticCurvePrivateKey",
    name: str,
    subject_key: "EllipticCurvePrivateKey",
    *extensions: "tuple[x509.ExtensionType, bool]",
) -> "x509.Certificate":
    """Return a certificate that the authority's key signs. Each extension has whether it is critical."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    public = subject_key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(AUTHORITY_NAME))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(key, SHA256())


def _constraint(host: str) -> "x509.GeneralName":
    from cryptography import x509

    address = _address(host)
    return x509.DNSName(host) if address is None else x509.IPAddress(ipaddress.ip_network(address))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _key_usage(*usages: str) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(**{each: each in usages for each in KEY_USAGES})


def _pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


@contextmanager
def _as_file(data: bytes) -> Generator[str]:
    """Yield a path from which data can be read once: Python takes certificates and keys from files only.

    It is a pipe where there are paths of pipes. Elsewhere it is a temporary file; a key in it is encrypted.
    """
    if os.path.isdir("/dev/fd"):
        reader, writer = os.pipe()
        try:
            with open(writer, "wb") as pipe:
                pipe.write(data)
            yield f"/dev/fd/{reader}"
        finally:
            os.close(reader)
    else:
        number, path = tempfile.mkstemp(prefix="contextc-")
        try:
            with open(number, "wb") as file:
                file.write(data)
            yield path
        finally:
            Path(path).unlink()


# ── trust ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


BEGINNING = "-----BEGIN CERTIFICATE-----"
CERTIFICATE = re.compile(rf"{BEGINNING}[^-]*-----END CERTIFICATE-----\s*")
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems have all certificates that they trust in one file."""


@contextmanager
def trusted_certificate(certificate: str, environment: Mapping[str, str]) -> Generator[dict[str, str]]:
    """Yield the variables that make a program trust a certificate besides what it trusts without them.

    They name files in a folder that only this user can read, and that is removed at the end. Copies that programs made
    are removed then, too. The tables `trust` and `copied` of client_setup.toml have the variables and the copies.
    """
    with tempfile.TemporaryDirectory(prefix="contextc-") as folder:
        written: dict[str, str] = {}
        variables: dict[str, str] = {}
        for table in client_tables().trust:
            own = environment.get(table.name, "")
            trusted = _read_certificates(own) if own else ""
            if not trusted and not table.adds:
                trusted = _system_certificates()
            if table.only_if_set and not own:
                continue
            if trusted not in written:
                path = Path(folder, f"{len(written)}.pem")
                path.write_text(f"{trusted}\n{certificate}" if trusted else certificate, encoding="utf-8")
                written[trusted] = str(path)
            variables[table.name] = written[trusted]
        try:
            yield variables
        finally:
            for table in client_tables().copied:
                if (copy := find_path(table.paths, environment)) is not None:
                    with suppress(OSError, UnicodeDecodeError):
                        _remove_certificate(certificate, copy.resolve())


def _remove_certificate(certificate: str, path: Path) -> None:
    """Remove a certificate from a file with several, as often as it is there. Nothing else in the file changes."""
    text = path.read_text(encoding="utf-8")
    ours = certificate.split()
    kept = CERTIFICATE.sub(lambda found: "" if found[0].split() == ours else found[0], text)
    if kept == text:
        return
    number, beside = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # only this user can read it
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(kept)
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise


def _system_certificates() -> str:
    """Return what programs trust that are not told otherwise."""
    for path in (ssl.get_default_verify_paths().openssl_cafile, *SYSTEM_BUNDLES):
        if found := _read_certificates(path):
            return found
    from contextc.proxy.upstream_connections import make_ssl_context

    return "".join([ssl.DER_cert_to_PEM_cert(each) for each in make_ssl_context().get_ca_certs(binary_form=True)])


def _read_certificates(path: str) -> str:
    """Return the certificates in a file, or in the files of a folder."""
    place = Path(path)
    texts: list[str] = []
    with suppress(OSError):
        for each in sorted(place.iterdir()) if place.is_dir() else [place]:
            with suppress(OSError, UnicodeDecodeError):
                texts.append(each.read_text())
    return "\n".join(dict.fromkeys([each for each in texts if BEGINNING in each]))
