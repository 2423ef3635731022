/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and buffers. Host only today: anything but SIRCL_HOST is SIRCL_UNSUPPORTED in one sentence. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H
#include "base/error.h"
sircl_result_t device_check_stream(sircl_stream_t, const char *call);
#endif
