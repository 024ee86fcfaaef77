"""A certificate authority of the tests' own, and a proxy that speaks TLS."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.proxy import FaultProxy


class Paths(NamedTuple):
    certificate: str
    key: str


class Authority:
    """Signs certificates. `path` is the bundle that trusts it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = str(folder / f"{name}.pem")
        certificate = self._sign(self._name, self._key.public_key(), [(x509.BasicConstraints(ca=True, path_length=0), True)])
        Path(self.path).write_bytes(certificate)

    def issue(self, host: str) -> Paths:
        """A certificate for a host's name or address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            host_name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            host_name = x509.DNSName(host)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._sign(name, key.public_key(), [(x509.SubjectAlternativeName([host_name]), False)])
        paths = Paths(str(self._folder / f"{host}.pem"), str(self._folder / f"{host}.key"))
        Path(paths.certificate).write_bytes(certificate)
        private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        Path(paths.key).write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
        return paths

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, extensions: list[tuple[x509.ExtensionType, bool]]
    ) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class TLSProxy(FaultProxy):
    """A FaultProxy that its clients speak TLS with. `clients`: the authority that must have signed theirs, where it asks for one."""

    def __init__(self, host: str, port: int, paths: Paths, clients: Authority | None = None) -> None:
        super().__init__(host, port)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*paths)
        if clients is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(clients.path)

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _serve(self, client: socket.socket) -> None:
        with self._context.wrap_socket(client, server_side=True) as encrypted_socket:
            with self._lock:
                self._open.add(encrypted_socket)
            try:
                super()._serve(encrypted_socket)
            finally:
                self._end(encrypted_socket)
