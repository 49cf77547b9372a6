"""Made-up ledgers of migrations, for tests that read or show them."""

import json
from pathlib import Path
from typing import Any

VERSIONS = {"keras_mp": "0.1.0", "keras": "3.15.1", "backend": "jax 0.10.2", "python": "3.12.3"}
RENAMED = {"path": "$.lr", "kind": "renamed", "what": "learning_rate", "matters": False}
DIFFERS = {"path": "$.layers[1]", "kind": "differs", "what": "one <b>mask</b>", "matters": True}
HOSTILE = "a/</script><script>alert('x')</script>\"\n<!--\u202e\u2028é&amp;/b.h5"


def row(name: str, result: str = "done", **more: Any) -> dict[str, Any]:
    """Returns a complete line of a ledger; `more` replaces entries."""
    is_done = result in ("done", "done before")
    return {
        "schema": 1,
        "run": "run-1",
        "when": "2030-01-31T12:00:00Z",
        "host": "node-1",
        "source": f"/models/{name}",
        "name": name,
        "kind": "h5",
        "files": 1,
        "bytes": 1000,
        "sha256": "0" * 64,
        "written_by": "TensorFlow 2.3",
        "model": {"class": "Functional", "name": "model", "layers": 4},
        "policies": {"mixed_float16": 3, "float32": 1},
        "optimizer": "Adam",
        "loss_scale": 32768.0,
        "result": result,
        "reason": None if is_done else "damaged",
        "why": None if is_done else f"{name}: it ends early",
        "where": None,
        "changes": [RENAMED] if is_done else [],
        "notes": [],
        "out": f"{name}.keras" if is_done else None,
        "out_bytes": 900 if is_done else None,
        "out_sha256": "1" * 64 if is_done else None,
        "verified": {"weights": 4, "optimizer": 9} if is_done else {},
        "seconds": 2.0,
        "peak_memory": 5000 if is_done else None,
        "versions": VERSIONS,
        "options": {"tf_version": None, "model_only": False},
        **more,
    }


def many(count: int) -> list[dict[str, Any]]:
    """Returns rows of all kinds and results, with different numbers."""
    kinds = ("h5", "keras", "saved_model", "checkpoint")
    rows = []
    for i in range(count):
        name = f"team{i % 7}/model_{i:05d}.h5"
        more = {
            "kind": kinds[i % 11 % 4],
            "bytes": 7 * i**3 + 100,
            "seconds": i**2 / 999,
            "peak_memory": None if i % 3 else 1000 * i,
        }
        if i % 10 == 3:
            why = {"reason": "needs --model", "why": "a checkpoint holds no model", "where": None}
            rows.append(row(name, "refused", **more, **why))
        elif i % 10 == 4:
            where = f"$.layers[{i}]"
            why = {"reason": "no counterpart", "why": f"{where} is odd", "where": where}
            rows.append(row(name, "refused", **more, **why))
        elif i % 20 == 7:
            rows.append(row(name, "failed", **more))
        else:
            changes = [RENAMED, DIFFERS] if i % 5 == 0 else [RENAMED]
            rows.append(row(name, "done before" if i % 9 == 0 else "done", **more, changes=changes))
    return rows


def lines(rows: list[dict[str, Any]]) -> list[bytes]:
    """Returns rows as the lines of a file."""
    return [json.dumps(each).encode() + b"\n" for each in rows]


def write(folder: Path, rows: list[dict[str, Any]], torn: bytes = b"") -> Path:
    """Creates a folder with a ledger and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "migration.jsonl").write_bytes(b"".join(lines(rows)) + torn)
    return folder
