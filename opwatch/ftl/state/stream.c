// SPDX-License-Identifier: MIT
#include "stream.h"

#include <string.h>

/* One lane of 1 GB/s is enough and simple to reimplement; four lanes would be faster. */
static uint64_t add_to_sum(uint64_t sum, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	while (len) {
		uint64_t word = 0;
		size_t n = len < 8 ? len : 8;

		memcpy(&word, bytes, n);
		sum = (sum ^ word) * 0xd6e8feb86659fd93ULL;
		sum ^= sum >> 32;
		bytes += n;
		len -= n;
	}
	return sum;
}

int ow_stream_move(struct ow_stream *stream, void *data, size_t len)
{
	int ret;

	if (!len)
		return 0;
	ret = stream->put ? stream->put(stream->ctx, data, len)
			  : stream->get(stream->ctx, data, len);
	if (!ret)
		stream->sum = add_to_sum(stream->sum, data, len);
	return ret;
}
