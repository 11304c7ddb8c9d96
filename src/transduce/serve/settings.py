"""Settings of the server: limits, keys, paths."""

from dataclasses import dataclass
from pathlib import Path

from transduce.errors import DataError, SettingError, reading

FORM_BYTES = 1_000_000
"""Bytes of a request body beyond its text."""
BYTES_PER_CHARACTER = 12
"""Maximum bytes of a character: two JSON escapes, or four percent escapes in a URL."""
FILE_BYTES = FORM_BYTES + 2_000_000
"""Bytes of a request with a file to translate."""
MEGABYTE, MOST_MEGABYTES = 1_000_000, 190
"""Unit and greatest value of `max_recording`."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Limits and switches of a server."""

    workers: int = 1
    """Processes that answer at the address. Each holds the runs, and its own limits; documents,
    files and glossaries are shared. A process that dies is started again."""
    memory: int | None = None
    """Megabytes of weights in memory at a time. Runs are then loaded at their first request, and
    the least recently used leave. A single run may exceed it."""
    pivot: tuple[str, ...] = ()
    """Language through which two runs may be chained, like en for de-en and en-fr. May be
    repeated."""
    url_prefix: str = ""
    """Path before all routes, like /mt."""
    api_keys: Path | None = None
    """File with an API key per line. Without it, no key is needed."""
    allow_origin: tuple[str, ...] = ()
    """Origin of a web page that may write, like https://tool.example: suggestions, glossaries,
    files. Without keys, pages of other origins may only translate. May be repeated."""
    metrics: bool = False
    """Serve /metrics for Prometheus."""
    no_files: bool = False
    """Refuse /translate_file."""
    speakers: Path | None = None
    """Imported encoder of speakers, for recordings in the format diarized_json."""
    pass_through: bool = False
    """Answer pairs that no run translates with the text itself, named untranslated, in place of
    status 400. Weblate saves its settings only where English to German is answered."""
    suggestions: Path | None = None
    """JSON Lines file that /suggest adds translations to, for training. Without it, they are
    refused."""
    glossaries: Path | None = None
    """File that keeps DeepL's glossaries, made if it is not there. Without it, they end with the
    server."""
    max_chars: int = 20_000
    """Characters of a request."""
    max_texts: int = 1000
    """Texts of a request."""
    max_alternatives: int = 8
    """Alternative translations per text."""
    max_waiting: int = 2000
    """Sentences that may wait for a run; beyond, requests are refused with status 429."""
    max_recording: int = 25
    """Megabytes of a recording to transcribe, at most 190. An hour has 14 as MP3 of 32 kbit/s, 115
    as WAV."""
    timeout: float = 120.0
    """Seconds for a request."""

    def __post_init__(self) -> None:
        """Raise SettingError for a setting out of its bounds."""
        for name in ("workers", "memory", "max_chars", "max_texts", "max_waiting"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise SettingError(f"--{name.replace('_', '-')}: give at least 1")
        if not 0 <= self.max_alternatives <= 15:
            raise SettingError("--max-alternatives: give a number from 0 to 15")
        if not 1 <= self.max_recording <= MOST_MEGABYTES:
            raise SettingError(f"--max-recording: give 1 to {MOST_MEGABYTES} megabytes")
        if not self.timeout > 0:
            raise SettingError("--timeout: give more than 0 seconds")
        if self.url_prefix and (not self.url_prefix.startswith("/") or self.url_prefix[-1] == "/"):
            raise SettingError(
                f"--url-prefix {self.url_prefix}: begin it with / and end it without"
            )

    @property
    def max_body_bytes(self) -> int:
        """Bytes of a request body without files."""
        return FORM_BYTES + BYTES_PER_CHARACTER * self.max_chars

    @property
    def max_audio_bytes(self) -> int:
        """Bytes of a request with a recording to transcribe."""
        return FORM_BYTES + MEGABYTE * self.max_recording

    @property
    def recording_limit(self) -> str:
        """Limit of a recording, and the remedies, for messages."""
        return (
            f"a recording may have {self.max_recording} MB: send it as MP3, Opus or FLAC, or start "
            "the server with a greater --max-recording"
        )

    @property
    def max_head_bytes(self) -> int:
        """Bytes of a request line with its headers; clients put texts into the URL."""
        return 2**16 + BYTES_PER_CHARACTER * self.max_chars


def read_api_keys(path: Path) -> frozenset[str]:
    """Keys of a file, each on a line; blank lines and lines that begin with # are skipped.

    Raises DataError for a file without keys.
    """
    with reading(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    lines = (line.strip() for line in text.splitlines())
    keys = frozenset(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise DataError(f"{path} has no keys; write one per line")
    return keys
