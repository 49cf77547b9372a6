"""A loaded model as an output: written, loaded again, compared, and only then in its place."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from keras_mp.files.stores.urls import is_url, redacted
from keras_mp.migration import archives, building, disk_room, publishing, shards, sources
from keras_mp.migration.loading import Loaded
from keras_mp.migration.requests import Outcome, Request

_WORTH_COLLECTING = 1 << 25  # bytes; looking through all objects takes longer than loading a few


def write(
    request: Request,
    outcome: Outcome,
    loaded: Loaded,
    files: Sequence[Path],
    options: dict[str, object],
    step: Callable[[str, int], object],
) -> Outcome:
    """Writes the output of a request; or nothing, where that fails or what is loaded again differs.

    Args:
        request: What is asked for; `out` is not None.
        outcome: What became of it so far: the checksum, the report, the notes.
        loaded: The model, which is released as soon as it is written.
        files: Of the artefact.
        options: What the output says that it was made with.
        step: Is told what goes on.

    Raises:
        Mismatch: What was loaded again is not what was saved.
        Refused, OSError: It cannot be written.
    """
    from keras_mp.migration.verifying import Saved, reload_and_compare

    out, shard_size = request.out, request.shard_size
    assert out is not None
    size, is_folder = _bytes_to_reserve(request, files), shard_size is not None
    with publishing.staged_output(
        out, request.scratch, size, tidy=request.tidy, folder=is_folder
    ) as beside:
        step("writing", 0)
        disk_room.check_room(loaded.model, beside, times=2 if shard_size is None else 1)
        saved = Saved.of(loaded.model)
        objects = loaded.objects | building.classes_in(loaded.model)
        source = redacted(request.source or request.path)
        made = _made(outcome, source, options, saved.counts)
        folder, written = beside.with_suffix(""), None
        if shard_size is None:
            archives.write(loaded.model, folder, made)
        else:
            shards.save(loaded.model, folder, shard_size, made)
        step("comparing", 0)
        loaded.model = None  # it need not fit into memory twice
        if saved.nbytes > _WORTH_COLLECTING:
            gc.collect()
        verified = reload_and_compare(folder, saved, loaded.report.rows, custom_objects=objects)
        if shard_size is None:
            step("packing", 0)
            archives.pack(folder, beside)
            sources.write_mark(beside, source, str(outcome.sha256), options)
            written = (beside.stat().st_size, sources.checksum([beside]))
    return replace(
        outcome, status="converted", verified=verified, written=written, out=redacted(out)
    )


def _bytes_to_reserve(request: Request, files: Sequence[Path]) -> int:
    """Returns the bytes to reserve on the disk."""
    # With an artefact of a store, room for both is reserved already.
    if request.source is not None or is_url(request.path):
        return 0
    return 2 * sum(file.stat().st_size for file in files)


def _made(
    outcome: Outcome, source: str, options: dict[str, object], counts: dict[str, int]
) -> dict[str, object]:
    """Returns what the output says of itself.

    Nothing of where, when, or by whom: the same artefact gives the same bytes.
    """
    return {
        "from": source,
        "sha256": outcome.sha256,
        "options": options,
        "changes": outcome.report["changes"] if outcome.report else [],
        "notes": list(outcome.notes),
        "verified": counts,
    }
