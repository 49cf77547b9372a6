"""Nothing is sent anywhere: the conftest forbids it to all tests, and no module could.

But for fsspec's drivers, which `keras_mp/files/stores` asks for stores that the user names.
"""

import ast
import socket
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(
    path for room in ("keras_mp", "compat", "migration") for path in (ROOT / room).rglob("*.py")
)
NETWORK = {"ftplib", "http", "httpx", "imaplib", "requests", "smtplib", "socket", "socketserver"}
NETWORK |= {"fsspec", "ssl", "urllib", "urllib3", "xmlrpc"}
PURE = {"urllib.parse"}
STORES = ROOT / "keras_mp" / "files" / "stores"


def test_a_test_that_reaches_out_fails():
    with pytest.raises(PermissionError, match=r"wants to reach 192\.0\.2\.1"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)  # an address for documentation
    with pytest.raises(PermissionError, match=r"wants to reach example\.org"):
        socket.getaddrinfo("example.org", 80)


def test_one_may_talk_to_oneself():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_no_module_imports_what_could():
    assert len(MODULES) > 100
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            found = NETWORK & {name.partition(".")[0] for name in names if name not in PURE}
            assert not found - ({"fsspec"} if path.parent == STORES else set()), (path, names)
