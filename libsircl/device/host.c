/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: the only kind of stream there is. */
#include "device/device.h"

sircl_result_t device_check_stream(sircl_stream_t stream, const char *call)
{
	if (stream == SIRCL_HOST)
		return SIRCL_SUCCESS;
	return error_set(
		SIRCL_UNSUPPORTED,
		"%s: stream %p is not SIRCL_HOST: this version works on host memory only, pass SIRCL_HOST",
		call, stream);
}
