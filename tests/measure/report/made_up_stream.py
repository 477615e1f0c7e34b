"""A long text whose numbers are made up."""

from ropewalk.measure.metrics.streaming import StreamResult, StreamSection

STRETCHES = tuple(StreamSection(100 * n + 1, 3 + n / 10, 0.5, 0.25, 4096) for n in range(1, 41))


def streamed():
    """Forty sections; the loss rises, time and cache stay."""
    return StreamResult(
        tokens=4001, piece=100, documents=3, rounds=2.5, loss=5.05, accuracy=0.5, bits_per_byte=2.1, seconds=1.0,
        processor_seconds=1.9, cache_bytes=4096, process_bytes=600 * 2**20, stretches=STRETCHES,
    )  # fmt: skip
