/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and frames between `sircl run -H` and its far ends. What comes from the other side is bounded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cmd_run.h"
#include "sircl.h"

static void room(struct buf *b, size_t n)
{
	size_t cap = b->cap > 0 ? b->cap : 4096;
	uint8_t *p;

	if (b->n + n <= b->cap)
		return;
	while (cap < b->n + n)
		cap *= 2;
	p = realloc(b->p, cap);
	if (p == NULL) /* the ranks end with us, or with our connection */
		exit(tool_error("run", "out of memory"));
	b->p = p;
	b->cap = cap;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	if (n == 0)
		return;
	room(b, n);
	memcpy(b->p + b->n, p, n);
	b->n += n;
}

void buf_drop(struct buf *b, size_t n)
{
	if (n == 0)
		return;
	b->n -= n;
	memmove(b->p, b->p + n, b->n);
}

void buf_free(struct buf *b)
{
	if (b->p != NULL)
		explicit_bzero(b->p, b->cap); /* the job's secret has been in some */
	free(b->p);
	*b = (struct buf){ 0 };
}

void buf_u32(struct buf *b, uint32_t v)
{
	const uint8_t p[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };

	buf_add(b, p, sizeof(p));
}

void buf_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s) + 1);
}

int buf_write(struct buf *b, int fd)
{
	size_t done = 0;

	while (done < b->n) {
		ssize_t k = write(fd, b->p + done, b->n - done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN)
			break;
		if (k <= 0)
			return -1;
		done += (size_t)k;
	}
	buf_drop(b, done);
	return 0;
}

ssize_t buf_read(struct buf *b, int fd, size_t most)
{
	ssize_t k;

	room(b, most);
	do
		k = read(fd, b->p + b->n, most);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return errno == EAGAIN ? -1 : 0;
	b->n += (size_t)k;
	return k;
}

uint32_t read_u32(struct reader *r)
{
	const uint8_t *p = r->p;

	if (r->n < 4) {
		r->bad = true;
		r->n = 0;
		return 0;
	}
	r->p += 4;
	r->n -= 4;
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

const char *read_text(struct reader *r)
{
	const uint8_t *p = r->p, *end = r->n > 0 ? memchr(p, 0, r->n) : NULL;

	if (end == NULL) {
		r->bad = true;
		r->n = 0;
		return "";
	}
	r->p = end + 1;
	r->n -= (size_t)(end + 1 - p);
	return (const char *)p;
}

void frame_add(struct buf *b, enum frame type, const void *a, size_t na, const void *c, size_t nc)
{
	const uint8_t t = (uint8_t)type;

	buf_add(b, &t, 1);
	buf_u32(b, (uint32_t)(na + nc));
	buf_add(b, a, na);
	buf_add(b, c, nc);
}

int frame_next(const struct buf *b, int *type, struct reader *body)
{
	struct reader head = { b->p + 1, 4, false };
	uint32_t len;

	if (b->n < 5)
		return 0;
	len = read_u32(&head);
	if (len > FRAME_MAX)
		return -1;
	if (b->n < 5 + (size_t)len)
		return 0;
	*type = b->p[0];
	*body = (struct reader){ b->p + 5, len, false };
	return 1;
}
