/* SPDX-License-Identifier: Apache-2.0 */
/* The output of the ranks of `sircl run -H` on our own standard streams, in a buffer, so that nothing waits
 * for them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cmd_run.h"

/* A description of our own where that is possible: making the one that we share with others non-blocking is
 * not ours to do. Else small writes after poll, which wait only where poll is wrong about room for a page. */
void sink_open(struct sink *s, int fd)
{
	char path[32];
	int own;

	s->fd = fd;
	if (!isatty(fd) && lseek(fd, 0, SEEK_CUR) >= 0) /* a file: opened again it would begin at 0 */
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	s->own = own >= 0;
	if (s->own)
		s->fd = own;
}

void sink_add(struct sink *s, int rank, bool label, const uint8_t *p, size_t n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d: ", rank);
	while (n > 0) {
		const uint8_t *nl = label ? memchr(p, '\n', n) : NULL;
		const size_t piece = nl != NULL ? (size_t)(nl + 1 - p) : n;

		if (label && !s->torn[rank])
			buf_add(&s->buf, text, strlen(text));
		buf_add(&s->buf, p, piece);
		s->torn[rank] = p[piece - 1] != '\n';
		p += piece;
		n -= piece;
	}
}

int sink_move(struct sink *s)
{
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };
	size_t done = 0;
	int err = 0;

	while (done < s->buf.n && poll(&p, 1, 0) > 0) {
		const size_t left = s->buf.n - done;
		const ssize_t k = write(s->fd, s->buf.p + done, left < 4096 ? left : 4096);

		if (k <= 0) {
			err = k == 0 || errno == EAGAIN || errno == EINTR ? 0 : errno;
			break;
		}
		done += (size_t)k;
	}
	buf_drop(&s->buf, err != 0 ? s->buf.n : done);
	return err;
}

void sink_close(struct sink *s)
{
	buf_free(&s->buf);
	if (s->own)
		close(s->fd);
}
