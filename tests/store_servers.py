"""Real servers on the loopback interface: S3 (moto), SFTP (asyncssh), HTTPS with its own authority.

Each is a process that ends with the session. fsspec and the tests' processes get the addresses and
passwords as users set them: from fsspec's configuration and the environment.
"""

import contextlib
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PASSWORD = "pass-w0rd-of-the-test"
KEY = "secret-key-of-the-test"

_S3 = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_SFTP = """
import asyncio, sys
import asyncssh
folder, password = sys.argv[1:]

class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return True
    def password_auth_supported(self):
        return True
    def validate_password(self, username, given):
        return (username, given) == ("me", password)

async def main():
    server = await asyncssh.create_server(
        Server, "127.0.0.1", 0, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=folder),
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""
_HTTPS = """
import functools, http.server, ssl, sys, threading
folder, certificate = sys.argv[1:]

class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(
    ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Store:
    """A server.

    Attributes:
        name: Of the protocol.
        root: The address of an empty folder on it, with the password if addresses have one.
        folder: The local folder that the server serves; None for S3.
        conf: fsspec's configuration for the protocol.
        env: The same, for other processes.
        process: The server's process.
    """

    name: str
    root: str
    folder: Path | None
    conf: dict[str, object]
    process: subprocess.Popen[bytes] = field(repr=False)
    env: dict[str, str] = field(default_factory=dict)

    def url(self, *names: str) -> str:
        """Returns an address on the server."""
        return "/".join([self.root, *names])

    def put(self, source: Path, *names: str) -> str:
        """Copies a file or folder to the server; returns its address."""
        if self.folder is not None:
            target = self.folder.joinpath(*names)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
            return self.url(*names)
        import fsspec

        files = [one for one in source.rglob("*") if one.is_file()] if source.is_dir() else [source]
        fs = fsspec.filesystem("s3")
        for one in files:
            inside = [] if one == source else [one.relative_to(source).as_posix()]
            fs.pipe_file(self.url(*names, *inside), one.read_bytes())
        return self.url(*names)


@contextlib.contextmanager
def _served(program: str, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Yields the port of a server, and its process, which ends when its stdin does."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _known(protocol: str, conf: dict[str, object], env: dict[str, str]) -> Iterator[None]:
    from fsspec import config

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(config.conf, protocol, conf)
        for name, value in env.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Store]:
    """An empty bucket of S3."""
    with _served(_S3) as (port, process):
        endpoint = f"http://127.0.0.1:{port}"
        conf: dict[str, object] = {"endpoint_url": endpoint, "key": "me", "secret": KEY}
        env = {
            "FSSPEC_S3_ENDPOINT_URL": endpoint,
            "FSSPEC_S3_KEY": "me",
            "FSSPEC_S3_SECRET": KEY,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        with _known("s3", conf, env):
            import fsspec

            fsspec.filesystem("s3").mkdir("bucket")
            yield Store("s3", "s3://bucket", None, conf, process, env)


@pytest.fixture(scope="session")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An SSH server with one user, whose password is in its address."""
    folder = tmp_path_factory.mktemp("sftp")
    (folder / "home").mkdir()
    with _served(_SFTP, str(folder), PASSWORD) as (port, process):
        root = f"sftp://me:{PASSWORD}@127.0.0.1:{port}/home"
        conf: dict[str, object] = {"look_for_keys": False, "allow_agent": False}
        with _known("sftp", conf, {}):
            yield Store("sftp", root, folder / "home", conf, process)


@pytest.fixture(scope="session")
def https_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A web server whose certificate authority only the tests know."""
    import trustme

    folder = tmp_path_factory.mktemp("https")
    authority, keys = trustme.CA(), tmp_path_factory.mktemp("keys")
    authority.cert_pem.write_to_path(keys / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keys / "own.pem")
    with _served(_HTTPS, str(folder), str(keys / "own.pem")) as (port, process):
        context = ssl.create_default_context(cafile=keys / "authority.pem")
        conf: dict[str, object] = {"ssl": context}
        env = {"SSL_CERT_FILE": str(keys / "authority.pem")}
        with _known("https", conf, env):
            yield Store("https", f"https://127.0.0.1:{port}", folder, conf, process, env)


@pytest.fixture(params=["s3", "sftp", "https"])
def server(request: pytest.FixtureRequest) -> Store:
    """Each of the servers."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Store)
    return found


@pytest.fixture(params=["s3", "sftp"])
def writable_server(request: pytest.FixtureRequest) -> Store:
    """Each of the servers that may be written to."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Store)
    return found
