"""The three exposition formats, and the encoder that selects among them."""

from __future__ import annotations

from enum import Enum

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.protobuf import ProtobufEncoder
from opwatch.metrics.text import TextEncoder


class ExpositionFormat(Enum):
    """A format of the answer. The value is its Content-Type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


class MetricEncoder:
    """Encodes one answer after the other.

    Keeps the encoded labels and histograms of each format's previous answer, so that only what changed is
    encoded again.
    """

    def __init__(self) -> None:
        self._encoders: dict[ExpositionFormat, TextEncoder | ProtobufEncoder] = {
            ExpositionFormat.TEXT: TextEncoder(is_openmetrics=False),
            ExpositionFormat.OPENMETRICS: TextEncoder(is_openmetrics=True),
            ExpositionFormat.PROTOBUF: ProtobufEncoder(),
        }

    def encode(
        self, samples: MetricSamples, form: ExpositionFormat, *, with_classic_buckets: bool = True
    ) -> bytes:
        """Return the answer. Without classic buckets, protobuf has native histograms alone."""
        return self._encoders[form].encode(samples, with_classic_buckets=with_classic_buckets)


def encode(samples: MetricSamples, form: ExpositionFormat) -> bytes:
    """Return one answer."""
    return MetricEncoder().encode(samples, form)
