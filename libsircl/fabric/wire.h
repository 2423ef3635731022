/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading and writing of little-endian records. A writer or reader that runs out of room or bytes
 * becomes `bad` and stays so; the caller checks once at the end. Nothing is trusted from a length that was
 * not checked.
 */
#ifndef FABRIC_WIRE_H
#define FABRIC_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wire {
	uint8_t *p;
	size_t pos, len;
	bool bad;
};

static inline struct wire wire_over(void *p, size_t len)
{
	return (struct wire){ .p = p, .len = len };
}

static inline uint8_t *wire_take(struct wire *w, size_t n)
{
	if (w->bad || w->len - w->pos < n) {
		w->bad = true;
		return NULL;
	}
	w->pos += n;
	return w->p + w->pos - n;
}

static inline void wire_put(struct wire *w, uint64_t v, size_t bytes)
{
	uint8_t *p = wire_take(w, bytes);

	for (size_t i = 0; p && i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t wire_get(struct wire *w, size_t bytes)
{
	const uint8_t *p = wire_take(w, bytes);
	uint64_t v = 0;

	for (size_t i = 0; p && i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static inline void wire_put_bytes(struct wire *w, const void *from, size_t n)
{
	uint8_t *p = wire_take(w, n);

	if (p && n)
		memcpy(p, from, n);
}

static inline void wire_get_bytes(struct wire *w, void *to, size_t n)
{
	const uint8_t *p = wire_take(w, n);

	if (p && n)
		memcpy(to, p, n);
	else if (n)
		memset(to, 0, n);
}

/* A string in a field of fixed size; always comes out terminated. */
static inline void wire_put_text(struct wire *w, const char *s, size_t field)
{
	uint8_t *p = wire_take(w, field);

	if (p) {
		memset(p, 0, field);
		memcpy(p, s, strnlen(s, field - 1));
	}
}

static inline void wire_get_text(struct wire *w, char *to, size_t field)
{
	wire_get_bytes(w, to, field);
	to[field - 1] = '\0';
}
#endif
