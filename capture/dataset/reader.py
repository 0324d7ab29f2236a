"""Random access to a captured dataset, in place: offset from the index, mapped file, no copies."""

import mmap
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftsmith.capture.dataset.archive import BLOCK_BYTES, parse_member_header
from draftsmith.capture.dataset.codec import SCALE_SUFFIX, get_codec
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.index import INDEX_NAME, hash_file, read_index
from draftsmith.capture.dataset.manifest import FINAL_NORM_ID, MANIFEST_NAME, Manifest
from draftsmith.capture.dataset.members import RESERVED_FIELDS, check_stored, parse_meta
from draftsmith.capture.dataset.rows import Row, check_shard_size, read_rows
from draftsmith.capture.dataset.sample import Sample
from draftsmith.capture.dataset.tensors import view_tensors

# A mapping keeps a file open; tensors in use keep theirs beyond this number.
MAX_MAPPED_SHARDS = 32
# Private pages: a write to a tensor copies the page and never reaches the file. Without a
# reservation, because a shard may be larger than the memory that such pages could claim.
_MAP_FLAGS = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)


class CapturedDataset:
    """The samples of a dataset folder, by number, in the order of its index.

    Tensors stored as plain floats are views of the mapped file: treat them as read-only. (A write
    stays in this process, but a later read of the same sample may see it.)
    With `check_samples`, the first read of a sample in a process compares its checksum.
    Raises DatasetError, naming file and sample, for anything that does not add up.
    """

    def __init__(
        self, directory: str | Path, *, allow_incomplete: bool = False, check_samples: bool = True
    ) -> None:
        self.directory = Path(directory)
        self.manifest = Manifest.read(self.directory)
        if not self.manifest.complete and not allow_incomplete:
            raise DatasetError(
                f"{self.directory / MANIFEST_NAME}: complete=false: the capture is under way "
                "or was interrupted; run it again to finish it, or read what there is with "
                "allow_incomplete=True"
            )
        index = read_index(self.directory)
        if index is None:
            raise DatasetError(
                f"{self.directory / INDEX_NAME}: no such file: no shard was finished"
            )
        self.shards = index.shardlist
        self._codec = get_codec(self.manifest.codec)
        self._rows: list[Row] = []
        self._shard_of: list[int] = []
        problems = []
        for number, entry in enumerate(self.shards):
            try:
                check_shard_size(self.directory, entry)
                rows = read_rows(self.directory, entry)
            except DatasetError as error:
                problems.append(str(error))
                continue
            self._rows += rows
            self._shard_of += [number] * len(rows)
        if problems:
            raise DatasetError("\n".join(problems))
        self.keys = [row.key for row in self._rows]
        self.lengths = [row.length for row in self._rows]
        self.num_supervised = [row.num_supervised for row in self._rows]
        self._refuse_repeated_keys()
        self._check_counts()
        self._unchecked = bytearray(b"\1" * len(self._rows)) if check_samples else None
        self._maps: OrderedDict[int, mmap.mmap] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int) -> Sample:
        meta, tensors = self._read(i)
        aux = None
        if "aux_hidden_states" in tensors:
            aux = self._codec.decode("aux_hidden_states", tensors)
        return Sample(
            key=self.keys[i],
            input_ids=tensors["input_ids"],
            loss_mask=tensors["loss_mask"],
            hidden_states=self._codec.decode("hidden_states", tensors),
            aux_hidden_states=aux,
            meta={name: value for name, value in meta.items() if name not in RESERVED_FIELDS},
        )

    def features(self, i: int, layer_ids: Sequence[int]) -> Tensor:
        """The states of `layer_ids` side by side, in the caller's order, repeats included.

        layer_ids: any of the captured ids; -1 is the final hidden state after the final norm
        returns: [T, n*H] in the codec's decoded dtype, memory of its own
        """
        available = self.manifest.aux_layer_ids
        missing = sorted({k for k in layer_ids if k != FINAL_NORM_ID and k not in available})
        if missing or not layer_ids:
            raise DatasetError(
                f"{self.directory}: layer {', '.join(map(str, missing)) or '(none given)'} was not "
                f"captured, available: {', '.join(map(str, sorted({*available, FINAL_NORM_ID})))}"
            )
        tensors = self._read(i)[1]
        decoded = {k: self._decode_layer(tensors, k) for k in set(layer_ids)}
        return torch.cat([decoded[k] for k in layer_ids], dim=1)

    def shard_url(self, i: int) -> str:
        """File name of the shard that holds sample `i`."""
        return self.shards[self._shard_of[i]].url

    def verify_hashes(self) -> None:
        """Compares every shard's sha256. Raises DatasetError listing damaged files and samples."""
        problems = [
            f"{self.directory / entry.url}: its sha256 changed: {self._locate(number)}"
            for number, entry in enumerate(self.shards)
            if hash_file(self.directory / entry.url) != entry.sha256
        ]
        if problems:
            raise DatasetError("\n".join(problems))

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes map the files themselves.
        return {**self.__dict__, "_maps": OrderedDict()}

    def _decode_layer(self, tensors: dict[str, Tensor], layer_id: int) -> Tensor:
        """One layer's [T, H], without decoding its neighbours."""
        if layer_id == FINAL_NORM_ID:
            return self._codec.decode("hidden_states", tensors)
        place, width = self.manifest.aux_layer_ids.index(layer_id), self.manifest.hidden_size
        name = "aux_hidden_states"
        part = {name: tensors[name][:, place * width : (place + 1) * width]}
        if name + SCALE_SUFFIX in tensors:
            part[name + SCALE_SUFFIX] = tensors[name + SCALE_SUFFIX][:, place : place + 1]
        return self._codec.decode(name, part)

    def _read(self, i: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The json fields and stored tensors of sample `i`, views of the mapped shard."""
        row = self._rows[i]
        try:
            buffer = self._map(self._shard_of[i])
            check_member(buffer, row.key, "json", row.json_offset, row.json_size)
            check_member(
                buffer, row.key, "safetensors", row.safetensors_offset, row.safetensors_size
            )
            if self._unchecked is not None and self._unchecked[i]:
                check_crc(buffer, row)
                self._unchecked[i] = 0
            meta, codec, layer_ids = parse_meta(
                buffer[row.json_offset : row.json_offset + row.json_size]
            )
            here, there = (codec.name, layer_ids), (self._codec.name, self.manifest.layer_ids)
            if here != there:
                raise DatasetError(f"its codec and layer ids are {here}, the manifest's {there}")
            tensors = view_tensors(buffer, row.safetensors_offset, row.safetensors_size)
            num_aux = len(self.manifest.aux_layer_ids)
            check_stored(tensors, codec, row.length, self.manifest.hidden_size, num_aux)
        except DatasetError as error:
            path = self.directory / self.shard_url(i)
            raise DatasetError(f"{path}: sample {row.key}: {error}") from error
        return meta, tensors

    def _map(self, number: int) -> mmap.mmap:
        if number in self._maps:
            self._maps.move_to_end(number)
            return self._maps[number]
        entry = self.shards[number]
        with (self.directory / entry.url).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, flags=_MAP_FLAGS)
        if len(mapped) != entry.filesize:
            raise DatasetError(
                f"the file has {len(mapped)} bytes, {INDEX_NAME} lists {entry.filesize}"
            )
        self._maps[number] = mapped
        if len(self._maps) > MAX_MAPPED_SHARDS:
            # Not closed: tensors may still look into it. It goes when the last of them does.
            self._maps.popitem(last=False)
        return mapped

    def _locate(self, number: int) -> str:
        """Which sample of a damaged shard it is."""
        # A fresh mapping, since the cached one may hold writes of this process.
        self._maps.pop(number, None)
        rows = [
            row for row, shard in zip(self._rows, self._shard_of, strict=True) if shard == number
        ]
        try:
            buffer = self._map(number)
        except DatasetError as error:
            return f"{error}; samples {rows[0].key} to {rows[-1].key}"
        for row in rows:
            try:
                check_member(buffer, row.key, "json", row.json_offset, row.json_size)
                check_member(
                    buffer, row.key, "safetensors", row.safetensors_offset, row.safetensors_size
                )
                check_crc(buffer, row)
            except DatasetError as error:
                return f"sample {row.key}: {error}"
        return f"samples {rows[0].key} to {rows[-1].key} are whole, the bytes around them changed"

    def _refuse_repeated_keys(self) -> None:
        first: dict[str, int] = {}
        for i, key in enumerate(self.keys):
            if first.setdefault(key, i) != i:
                urls = [self.shard_url(j) for j in (first[key], i)]
                raise DatasetError(
                    f"{self.directory}: sample {key} is in {urls[0]} and in {urls[1]}"
                )

    def _check_counts(self) -> None:
        if not self.manifest.complete:
            return
        counts = self.manifest.counts
        for name, stated, found in (
            ("samples", counts.samples, len(self._rows)),
            ("tokens", counts.tokens, sum(self.lengths)),
            ("supervised_tokens", counts.supervised_tokens, sum(self.num_supervised)),
        ):
            if stated != found:
                raise DatasetError(
                    f"{self.directory / MANIFEST_NAME}: counts.{name}={stated}, "
                    f"the shards hold {found}"
                )


def check_member(buffer: mmap.mmap, key: str, kind: str, offset: int, size: int) -> None:
    """Refuses an index that points at another member than it says. Raises DatasetError."""
    found = parse_member_header(buffer[offset - BLOCK_BYTES : offset])
    if found != (key, kind, size):
        raise DatasetError(
            f"the archive has {found[0]}.{found[1]} of {found[2]} bytes where the index has "
            f"{key}.{kind} of {size}"
        )


def check_crc(buffer: mmap.mmap, row: Row) -> None:
    """Refuses members whose bytes changed since they were written. Raises DatasetError."""
    view = memoryview(buffer)
    crc = zlib.crc32(view[row.json_offset : row.json_offset + row.json_size])
    end = row.safetensors_offset + row.safetensors_size
    crc = zlib.crc32(view[row.safetensors_offset : end], crc)
    if crc != row.crc32:
        raise DatasetError(f"its bytes changed: crc32 {crc:08x}, written as {row.crc32:08x}")
